// The form, the link that holds its state, and what the worker answers.

const form = document.getElementById('intent');
const go = document.getElementById('go');
const status = document.getElementById('status');
const result = document.getElementById('result');
const FIELDS = ['model', 'method', 'hardware', 'sequence', 'samples', 'memory', 'target'];
const FIRST = { model: 'llama-3.1-8b', method: 'lora', hardware: 'a100-80g-x8', sequence: '2048', samples: '10000', memory: '', target: 'trl' };

const worker = new Worker('worker.js', { type: 'module' });
let asked = 0;
let ready = false;
let shown = '';

function read() {
  return Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value.trim()]));
}

function write(fields) {
  for (const name of FIELDS) form.elements[name].value = fields[name] ?? FIRST[name];
}

function fragment(fields) {
  const kept = FIELDS.filter((name) => fields[name]).map((name) => [name, fields[name]]);
  return `#${new URLSearchParams(kept)}`;
}

function linked() {
  const given = new URLSearchParams(location.hash.slice(1));
  const known = FIELDS.some((name) => given.has(name));
  return known ? Object.fromEntries(FIELDS.map((name) => [name, given.get(name) ?? ''])) : null;
}

function ask() {
  if (!ready || !form.reportValidity()) return;
  const fields = read();
  shown = fragment(fields);
  history.replaceState(null, '', shown);
  asked += 1;
  status.textContent = 'planning';
  result.setAttribute('aria-busy', 'true');
  worker.postMessage({ number: asked, fields });
}

function text(id, value) {
  document.getElementById(id).textContent = value;
}

function file({ name, text: content }) {
  const details = document.createElement('details');
  const summary = document.createElement('summary');
  const pre = document.createElement('pre');
  summary.textContent = name;
  pre.textContent = content;
  pre.tabIndex = 0;
  pre.setAttribute('role', 'region');
  pre.setAttribute('aria-label', name);
  details.append(summary, pre);
  return details;
}

function show(answer) {
  const heading = document.getElementById('verdict');
  heading.textContent = answer.verdict || 'There is no plan';
  heading.className = answer.fits ? 'good' : 'bad';
  for (const [name, value] of Object.entries(answer.numbers)) heading.dataset[name] = value;
  text('run', answer.run ?? '');
  text('faults', answer.faults);
  text('spec', answer.spec);
  text('screen', answer.screen);
  document.getElementById('told').hidden = !answer.faults;
  document.getElementById('charts').hidden = !answer.memory;
  document.getElementById('whole').hidden = !answer.screen;
  document.getElementById('written').hidden = answer.files.length === 0;
  // made by the package, which escapes every text
  document.getElementById('memory-chart').innerHTML = answer.memory;
  document.getElementById('time-chart').innerHTML = answer.time;
  document.getElementById('files').replaceChildren(...answer.files.map(file));
  document.getElementById('link').href = shown;
  result.hidden = false;
  result.removeAttribute('aria-busy');
  status.textContent = answer.verdict || 'there is no plan; the reasons are below';
  heading.focus();
}

worker.onmessage = ({ data }) => {
  if (data.kind === 'ready') {
    ready = true;
    go.disabled = false;
    status.textContent = 'ready';
    if (linked()) ask();
  } else if (data.kind === 'answer' && data.number === asked) {
    show(data.answer);
  } else if (data.kind === 'failed') {
    result.removeAttribute('aria-busy');
    status.textContent = `this is a fault of the page: ${data.message}`;
  }
};
worker.onerror = (event) => { status.textContent = `tunec could not be loaded: ${event.message ?? ''}`; };

form.addEventListener('submit', (event) => { event.preventDefault(); ask(); });
addEventListener('hashchange', () => {
  if (location.hash === shown) return;
  write(linked() ?? FIRST);
  ask();
});
document.getElementById('copy').addEventListener('click', async () => {
  const link = new URL(shown, location.href).href;
  try {
    await navigator.clipboard.writeText(link);
    status.textContent = 'copied';
  } catch {
    status.textContent = link;
  }
});

const names = await (await fetch('names.json')).json();
function options(id, values) {
  document.getElementById(id).replaceChildren(...values.map((value) => new Option(value || 'no program', value)));
}
options('models', names.models);
options('machines', names.machines);
options('target', ['', ...names.targets]);
write(linked() ?? FIRST);
