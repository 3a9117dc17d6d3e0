"use strict";

// What makes a report convenient: sorting, filtering, opening. Without it everything is there too.

document.documentElement.classList.add("scripted");

const every = (selector, root = document) => Array.from(root.querySelectorAll(selector));
const collator = new Intl.Collator("en", { numeric: true });

// ── tables ───────────────────────────────────────────────────────────────────────────────────────

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  if (typeof one === "number") return -1;
  if (typeof other === "number") return 1;
  return collator.compare(one, other);
}

function sorted(rows, valueOf, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  return rows
    .map((row, at) => ({ row, at, value: valueOf(row) }))
    .sort((a, b) => {
      if (a.value === null || b.value === null) {
        return (a.value === null) - (b.value === null) || a.at - b.at;
      }
      return sign * compare(a.value, b.value) || a.at - b.at;
    })
    .map((each) => each.row);
}

function turn(heading, first) {
  const before = heading.getAttribute("aria-sort");
  const other = first === "ascending" ? "descending" : "ascending";
  const direction = before === first ? other : first;
  every("th[aria-sort]", heading.parentElement).forEach((each) => each.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", direction);
  return direction;
}

function cellValue(cell) {
  if (cell.dataset.value === undefined) return cell.textContent.trim();
  const value = Number(cell.dataset.value);
  return Number.isNaN(value) ? cell.dataset.value : value;
}

for (const table of every("table.sortable")) {
  const body = table.tBodies[0];
  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const heading = button.parentElement;
    const direction = turn(heading, "ascending");
    const at = heading.cellIndex;
    body.append(...sorted(Array.from(body.rows), (row) => cellValue(row.cells[at]), direction));
  });
}

// ── decisions ────────────────────────────────────────────────────────────────────────────────────

for (const button of every("[data-open]")) {
  button.addEventListener("click", () => {
    const open = button.dataset.open === "all";
    every("details", button.closest("section")).forEach((each) => { each.open = open; });
  });
}

for (const input of every("[data-find]")) {
  const section = document.getElementById(input.dataset.find);
  const said = section.querySelector("[role=status]");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let count = 0;
    for (const group of every(".tree > details", section)) {
      let any = false;
      for (const slot of every(".slot", group)) {
        slot.hidden = wanted !== "" && !slot.textContent.toLowerCase().includes(wanted);
        any = any || !slot.hidden;
        count += slot.hidden ? 0 : 1;
      }
      group.hidden = !any;
      group.open = wanted !== "" && any;
    }
    said.textContent = wanted === "" ? "" : `${count} slots`;
  });
}

function reveal() {
  let element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!element) return;
  const target = element;
  for (; element; element = element.parentElement) {
    if (element.tagName === "DETAILS") element.open = true;
    element.hidden = false;
  }
  if (target.classList.contains("slot")) target.querySelector("summary").focus();
  target.scrollIntoView();
}

window.addEventListener("hashchange", reveal);
if (location.hash) reveal();

// on paper, charts come with their tables, and decisions with their values; a reader opens reasons
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = every("details:not([open]):not(.slot)");
  closed.forEach((each) => { each.open = true; });
});
window.addEventListener("afterprint", () => {
  closed.forEach((each) => { each.open = false; });
  closed = [];
});

// ── fleet ────────────────────────────────────────────────────────────────────────────────────────

const source = document.getElementById("fleet-data");
if (source) heatMap(JSON.parse(source.textContent), document.getElementById("heat"));

function heatMap(fleet, table) {
  const body = table.tBodies[0];
  const heading = table.tHead.rows[0];
  const rows = Array.from(body.rows);
  const status = document.getElementById("heat-status");
  const detail = document.getElementById("heat-detail");
  const metricChoice = document.getElementById("heat-metric");
  const lead = 2; // the name, and on how many there is a plan
  const count = fleet.columns.length;
  const indices = new Map(rows.map((row, at) => [row, at]));
  const fits = (cell) => cell !== 0 && cell.length > 1;

  const number = (value, digits) => value.toLocaleString("en", { maximumFractionDigits: digits });
  const short = (value) => {
    if (value >= 1e6) return `${number(value / 1e6, 1)}M`;
    if (value >= 1e4) return `${number(value / 1e3, 0)}k`;
    return value >= 1e3 ? `${number(value / 1e3, 1)}k` : number(value, value < 10 ? 2 : 0);
  };
  const layout = (cell) => fleet.layouts[cell[0]];
  const metrics = {
    memory: { of: (cell) => 100 * cell[1] / fleet.budgets[cell[2]], say: (v) => number(v, 0), bounds: fleet.bounds },
    tokens: { of: (cell) => cell[3], say: short, log: true },
    samples: { of: (cell) => cell[4], say: short, log: true },
    cost: { of: (cell) => cell[5], say: short, log: true },
    micro: { of: (cell) => layout(cell)[5], say: (v) => number(v, 0), log: true },
    devices: { of: (cell) => layout(cell)[8], say: (v) => number(v, 0), log: true },
    layout: { of: (cell) => fleet.words.indexOf(word(cell)), say: (v) => fleet.words[v] },
    precision: { of: (cell) => fleet.precisions.indexOf(layout(cell)[0]), say: (v) => fleet.precisions[v] },
  };
  function word(cell) {
    const [, engine, zero] = layout(cell);
    return engine === "deepspeed" ? `ZeRO ${zero}` : engine === "none" ? "one" : engine;
  }
  let metric = metrics.memory;

  function range() {
    if (metric.bounds) return [0, 100];
    let low = Infinity;
    let high = -Infinity;
    for (const line of fleet.cells) {
      for (const cell of line) {
        const value = fits(cell) ? metric.of(cell) : null;
        if (value === null || (metric.log && value <= 0)) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    return low <= high ? [low, high] : [0, 1];
  }

  function paint() {
    const [low, high] = range();
    const scale = metric.log ? (value) => Math.log(Math.max(value, low)) : (value) => value;
    const width = scale(high) - scale(low);
    const step = (value) => {
      if (metric.bounds) return metric.bounds.findLastIndex((bound) => value >= bound);
      const share = width > 0 ? (scale(value) - scale(low)) / width : 0.5;
      return Math.max(0, Math.min(7, Math.floor(share * 8)));
    };
    rows.forEach((row, at) => {
      for (let column = 0; column < count; column += 1) {
        const cell = fleet.cells[at][column];
        const value = fits(cell) ? metric.of(cell) : null;
        const shown = row.cells[column + lead];
        shown.textContent = value !== null ? metric.say(value) : cell === 0 ? "" : fits(cell) ? "—" : "no";
        shown.className = value !== null ? `q${step(value)}` : "no";
      }
    });
    every(".ramp span").forEach((each, at) => {
      const value = metric.bounds ? metric.bounds[at] : metric.log
        ? Math.exp(scale(low) + (width * at) / 8)
        : low + ((high - low) * at) / 8;
      const named = metric === metrics.layout || metric === metrics.precision;
      const words = metric === metrics.layout ? fleet.words : fleet.precisions;
      const index = named ? words.findIndex((_, place) => step(place) === at) : 0;
      each.textContent = named ? words[index] || "" : metric.say(value);
      each.hidden = named && index < 0;
    });
  }

  function sort(column) {
    const asText = column === 0;
    const direction = turn(heading.cells[column], asText ? "ascending" : "descending");
    const valueOf = (row) => {
      const at = indices.get(row);
      if (column === 0) return fleet.rows[at];
      if (column === 1) return fleet.cells[at].filter(fits).length;
      const cell = fleet.cells[at][column - lead];
      return fits(cell) ? metric.of(cell) : null;
    };
    body.append(...sorted(rows, valueOf, direction));
    const name = column === 0 ? fleet.row : column === 1 ? "fits" : fleet.columns[column - lead];
    status.textContent = `sorted by ${name}, ${direction}`;
  }

  // filters
  const hidden = document.createElement("style");
  document.head.append(hidden);
  const matches = (name, text) => text.split(/\s+/).every((part) => name.toLowerCase().includes(part));

  function filter() {
    const rowText = document.getElementById("heat-rows").value.trim().toLowerCase();
    const columnText = document.getElementById("heat-columns").value.trim().toLowerCase();
    const wanted = document.getElementById("heat-fits").value;
    const columns = fleet.columns.map((name) => matches(name, columnText));
    let shown = 0;
    rows.forEach((row, at) => {
      const cells = fleet.cells[at].filter((cell, column) => columns[column] && cell !== 0);
      const fitting = cells.filter(fits).length;
      const holds = {
        all: true,
        some: fitting > 0,
        every: fitting === cells.length && fitting > 0,
        lacking: fitting < cells.length,
        none: fitting === 0,
      }[wanted];
      row.hidden = !holds || !matches(fleet.rows[at], rowText);
      shown += row.hidden ? 0 : 1;
    });
    hidden.textContent = columns
      .map((there, at) => (there ? "" : `#heat tr > :nth-child(${at + lead + 1}) { display: none }`))
      .join("\n");
    const there = columns.filter(Boolean).length;
    status.textContent =
      `${number(shown, 0)} of ${number(rows.length, 0)} ${fleet.row}s, ` +
      `${number(there, 0)} of ${number(count, 0)} ${fleet.column}s`;
    keepReachable();
  }

  // moving with the keyboard: the whole table is one stop
  table.setAttribute("role", "grid");
  const inside = (cell) => cell.querySelector("button") || cell;
  let current = null;

  function makeCurrent(cell) {
    if (current) inside(current).tabIndex = -1;
    current = cell;
    inside(cell).tabIndex = 0;
  }

  function isVisible(cell) {
    return !cell.parentElement.hidden && cell.offsetParent !== null;
  }

  function keepReachable() {
    if (!isVisible(current)) makeCurrent(heading.cells[0]);
  }

  every("button", heading).forEach((button) => { button.tabIndex = -1; });
  makeCurrent(heading.cells[0]);

  function inLine(cell, step) {
    let next = cell;
    do next = step > 0 ? next.nextElementSibling : next.previousElementSibling;
    while (next && !isVisible(next));
    return next;
  }

  function inColumn(cell, step) {
    const lines = [heading, ...Array.from(body.rows).filter((row) => !row.hidden)];
    const at = Math.max(0, Math.min(lines.length - 1, lines.indexOf(cell.parentElement) + step));
    return lines[at].cells[cell.cellIndex];
  }

  function edge(cell, end) {
    const cells = Array.from(cell.parentElement.cells).filter(isVisible);
    return end ? cells[cells.length - 1] : cells[0];
  }

  const moves = {
    ArrowRight: (cell) => inLine(cell, 1),
    ArrowLeft: (cell) => inLine(cell, -1),
    ArrowDown: (cell) => inColumn(cell, 1),
    ArrowUp: (cell) => inColumn(cell, -1),
    PageDown: (cell) => inColumn(cell, 10),
    PageUp: (cell) => inColumn(cell, -10),
    Home: (cell, all) => edge(all ? inColumn(cell, -rows.length) : cell, false),
    End: (cell, all) => edge(all ? inColumn(cell, rows.length) : cell, true),
  };

  table.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    const cell = event.target.closest("th, td");
    if (!move || !cell || event.altKey || event.metaKey) return;
    event.preventDefault();
    const next = move(cell, event.ctrlKey);
    if (next) go(next);
  });

  function go(cell) {
    makeCurrent(cell);
    inside(cell).focus();
  }

  table.addEventListener("focusin", (event) => {
    const cell = event.target.closest("th, td");
    if (cell) tell(cell);
  });

  table.addEventListener("click", (event) => {
    const cell = event.target.closest("th, td");
    if (!cell) return;
    go(cell);
    if (event.target.closest("button")) sort(cell.cellIndex);
  });

  const gib = (mebibytes) => `${number(mebibytes / 1024, 1)} GiB`;

  function tell(cell) {
    const at = indices.get(cell.parentElement);
    const column = cell.cellIndex - lead;
    if (at === undefined || column < 0) return;
    const found = fleet.cells[at][column];
    const names = { [fleet.row]: fleet.rows[at], [fleet.column]: fleet.columns[column] };
    const pair = `${names.spec} on ${names.cluster}`;
    detail.querySelector("strong").textContent = pair;
    detail.querySelector("span").textContent = found === 0 ? "not built" : fits(found) ? how(found) : fleet.whys[found[0]];
  }

  function how(cell) {
    const [precision, , , offload, checkpointing, micro, accumulation, global, devices] = layout(cell);
    const budget = fleet.budgets[cell[2]];
    const parts = [
      `${gib(cell[1])} of ${gib(budget)} (${number(100 * cell[1] / budget, 0)} %)`,
      `${word(cell)} in ${precision}`.replace("one in", "one process in"),
      offload === "none" ? "" : `optimizer states on ${offload}`,
      checkpointing === "none" ? "no recomputation" : "recomputation",
      `batch ${micro} x ${accumulation} on ${devices} = ${global}`,
      cell[3] ? `${number(cell[3], 0)} tokens/s` : `${number(cell[4], 3)} samples/s`,
      cell[5] === null ? "" : `$${number(cell[5], 2)}`,
    ];
    return parts.filter(Boolean).join("; ");
  }

  metricChoice.addEventListener("change", () => {
    metric = metrics[metricChoice.value];
    paint();
    status.textContent = `cells show ${metricChoice.selectedOptions[0].textContent}`;
  });
  ["heat-rows", "heat-columns"].forEach((id) => document.getElementById(id).addEventListener("input", filter));
  document.getElementById("heat-fits").addEventListener("change", filter);
}
