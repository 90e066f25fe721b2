// Two runs side by side: what became of the requests under each, over the windows both have.

import { goodOf, PARTS, parts } from "./run.js";
import { count, make, percent } from "./words.js";

const MEASURES = [
  ["goodput", (fate) => [goodOf(fate), fate.received]],
  ["in time", (fate) => [fate.in_time, fate.received]],
  ["accuracy", (fate) => [goodOf(fate), fate.in_time]],
  ["late", (fate) => [parts(fate).late, fate.received]],
  ["dropped", (fate) => [parts(fate).dropped, fate.received]],
  [PARTS.lost, (fate) => [parts(fate).lost, fate.received]],
];

const total = (run, tenant, numbers) => {
  const sum = { received: 0, in_time: 0, late: 0, dropped: 0, failed: 0, wrong: 0, unjudged: 0, reconfiguring: 0 };
  for (const number of numbers) {
    for (const name of tenant === null ? run.tenants : [tenant]) {
      const fate = run.fate(name, number);
      for (const key of Object.keys(sum)) sum[key] += fate[key] ?? 0;
    }
  }
  return sum;
};

const share = ([part, whole]) => (whole && part !== null ? part / whole : null);

/** The table of two runs; windows are matched by their place, since numbers continue over restarts. */
export const drawBeside = (place, runs) => {
  const windows = Math.min(...runs.map((run) => run.numbers.filter((each) => run.windows.get(each).ended_s !== null).length));
  const numbers = runs.map((run) => run.numbers.slice(0, windows));
  const names = runs[0].tenants.filter((each) => runs.every((run) => run.tenants.includes(each)));
  const rows = [];
  for (const tenant of [null, ...names]) {
    const fates = runs.map((run, at) => total(run, tenant, numbers[at]));
    for (const [measure, of] of MEASURES.slice(0, tenant === null ? MEASURES.length : 3)) {
      const values = fates.map((fate) => share(of(fate)));
      const cells = values.map((value, at) => make("td", { class: "number", text: percent(value, 1), title: count(of(fates[at])[0]) }));
      const difference = values.some((each) => each === null) ? "–" : `${values[1] - values[0] >= 0 ? "+" : "−"}${(100 * Math.abs(values[1] - values[0])).toFixed(1)} points`;
      rows.push(make("tr", {}, make("th", { scope: "row", text: `${tenant ?? "all tenants"}, ${measure}` }), ...cells, make("td", { class: "number", text: difference })));
    }
  }
  const named = runs.map((run) => (runs[0].about.policy === runs[1].about.policy ? `run ${run.about.run}, ${run.about.policy}` : run.about.policy));
  const head = make("tr", {}, make("th", { scope: "col", text: "" }), ...named.map((text) => make("th", { scope: "col", class: "number", text })), make("th", { scope: "col", class: "number", text: "difference" }));
  place.replaceChildren(make("div", { class: "card" },
    make("div", { class: "head" }, make("h2", { text: `${named[0]} and ${named[1]}` }), make("span", { class: "note", text: `${windows} windows that both have` })),
    make("div", { class: "box", tabindex: 0, role: "region", "aria-label": "Two runs side by side" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)))));
};
