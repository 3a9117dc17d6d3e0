// Pyodide with the package, beside the page: a plan never blocks it.
import { loadPyodide } from './pyodide/pyodide.mjs';

async function load() {
  const [python, archive] = await Promise.all([
    loadPyodide({ indexURL: new URL('./pyodide/', import.meta.url).href }),
    fetch('packages.zip').then((response) => {
      if (!response.ok) throw new Error(`packages.zip: ${response.status}`);
      return response.arrayBuffer();
    }),
  ]);
  const folder = python.runPython('import site; site.getsitepackages()[0]');
  python.unpackArchive(archive, 'zip', { extractDir: folder });
  python.runPython('import os; os.makedirs("/run", exist_ok=True); os.chdir("/run")');
  python.runPython('import json; from tunec_page import answers');
  return python.runPython('lambda text: json.dumps(answers.answer(json.loads(text)))');
}

const loading = load();
loading.then(
  () => postMessage({ kind: 'ready' }),
  (error) => postMessage({ kind: 'failed', message: String(error) }),
);

onmessage = async ({ data }) => {
  try {
    const answer = await loading;
    postMessage({ kind: 'answer', number: data.number, answer: JSON.parse(answer(JSON.stringify(data.fields))) });
  } catch (error) {
    postMessage({ kind: 'failed', number: data.number, message: String(error) });
  }
};
