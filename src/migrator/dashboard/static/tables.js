// The lists beneath the charts: what holds the GPU, why it was planned anew, what happened.

import { goodOf } from "./run.js";
import { count, lasting, make, moment, percent, seconds, size } from "./words.js";

const PARTS = [
  ["create_s", "instance created"],
  ["load_s", "weights loaded"],
  ["context_s", "context"],
  ["copy_s", "copied to the GPU"],
  ["first_s", "first batch"],
];
const REST = ["everything else", "var(--none)"];

/** A table whose rows are made anew only where they differ. */
export class List {
  /** `legend` explains drawn cells, and is shown if there are any. */
  constructor(title, headers, numeric = [], legend = null) {
    this.legend = legend;
    this.body = make("tbody");
    this.numeric = new Set(numeric);
    this.none = make("p", { class: "none", text: "nothing yet" });
    const head = make("tr", {}, ...headers.map((text, at) => make("th", { scope: "col", class: this.numeric.has(at) ? "number" : null, text })));
    this.table = make("table", {}, make("thead", {}, head), this.body);
    this.box = make("div", { class: "box", tabindex: 0, role: "region", "aria-label": title }, this.table);
    this.element = make("section", { class: "card" }, make("div", { class: "head" }, make("h2", { text: title })), this.box, this.none, legend);
    this.said = "";
  }

  draw(rows) {
    const said = JSON.stringify(rows.map((row) => row.map((cell) => cell?.words ?? cell)));
    if (said === this.said) return;
    this.said = said;
    this.none.hidden = rows.length > 0;
    this.box.hidden = !rows.length;
    if (this.legend) this.legend.hidden = !rows.some((row) => row.some((cell) => cell?.element));
    this.body.replaceChildren(...rows.map((row) => make("tr", {}, ...row.map((cell, at) => this.cell(cell, at)))));
  }

  cell(cell, at) {
    const kind = this.numeric.has(at) ? "number" : at === 0 ? "when" : null;
    if (cell?.element) return make("td", { class: kind }, cell.element());
    return make("td", { class: kind, text: cell });
  }
}

/** With a legend of the colours that stand for the parts of a start. */
export const unitsList = (palette) => {
  const parts = [...PARTS.map(([, words], at) => [words, palette[at].fill]), REST];
  const items = parts.map(([words, colour]) => make("li", {}, make("span", { class: "swatch", style: `background:${colour}` }), words));
  const legend = make("div", {},
    make("p", { class: "note", text: "A start lasts from the creation of an instance, if it had to be created, until its worker serves." }),
    make("ul", { class: "legend", "aria-label": "Parts of a start" }, ...items));
  return new List("Instances and workers", ["place", "tenant", "state", "since", "start took", "parts of the start"], [4], legend);
};

export const unitRows = (run) => {
  const present = [...run.units.values()].filter((each) => each.to_s === null || (run.ended !== null && each.to_s >= run.ended - 1));
  return present
    .sort((a, b) => (a.start ?? 99) - (b.start ?? 99) || a.unit.localeCompare(b.unit))
    .map((each) => {
      const parts = overhead(run, each);
      return [
        each.unit.split("#")[0],
        each.tenant ? `${each.tenant}${each.task === "retraining" ? ", retraining" : ""}` : "–",
        each.state,
        run.ended === null ? lasting(run.now - each.from_s) : moment(run, each.from_s),
        seconds(parts ? total(parts) : null),
        parts ? { words: JSON.stringify(parts), element: () => bar(parts, run.palette) } : "",
      ];
    });
};

/** What the start of a unit took: recorded with one of its states. */
const overhead = (run, unit) => {
  const own = [...run.units.values()].filter((each) => each.unit === unit.unit && Object.keys(each.parts_s).length);
  return own.sort((a, b) => a.from_s - b.from_s).at(-1)?.parts_s ?? null;
};

const total = (parts) => (parts.create_s ?? 0) + (parts.warm_s ?? parts.total ?? 0);

const bar = (parts, palette) => {
  const known = PARTS.map(([name, words], at) => [name, words, palette[at].fill]).filter(([name]) => parts[name]);
  const rest = total(parts) - known.reduce((sum, [name]) => sum + parts[name], 0);
  const shown = [...known.map(([name, words, colour]) => [parts[name], words, colour]), [Math.max(0, rest), ...REST]];
  const whole = shown.reduce((sum, [value]) => sum + value, 0) || 1;
  const words = shown.filter(([value]) => value > 0.0005).map(([value, name]) => `${name} ${seconds(value)}`).join(", ");
  return make("span", { class: "parts", role: "img", title: words, "aria-label": words },
    ...shown.map(([value, , colour]) => make("i", { style: `width:${(100 * value) / whole}%;background:${colour}` })));
};

const MOST_ROWS = 100;

export const happeningsList = () => new List("Plans and events, newest first", ["at", "kind", "what"]);

export const happeningRows = (run) =>
  [...[...run.plans.values()].map((each) => ({ at_s: each.at_s, kind: "plan", words: planWords(each) })), ...run.events]
    .sort((a, b) => b.at_s - a.at_s)
    .slice(0, MOST_ROWS)
    .map((each) => [moment(run, each.at_s), each.kind, each.words]);

const planWords = (plan) => {
  const facts = [
    plan.predicted_goodput === null ? null : `goodput ${count(plan.predicted_goodput)} promised`,
    plan.plan_s === null ? null : `took ${seconds(plan.plan_s)}`,
    plan.gap === null ? null : `gap ${(100 * plan.gap).toFixed(2)}%`,
  ];
  return [`window ${plan.window}, slot ${plan.slot}: ${plan.reason}`, ...facts.filter((each) => each !== null)].join("; ");
};

export const actionsList = () => new List("Actions, newest first", ["at", "action", "by", "outcome", "what"]);
export const actionRows = (run) =>
  [...run.actions].reverse().slice(0, 60).map((each) => [
    moment(run, each.at_s), each.tenant ? `${each.kind} ${each.tenant}` : each.kind, each.who, each.outcome, each.words,
  ]);

export const windowsList = () =>
  new List("Windows: promised and measured", ["window", "promised", "goodput", "share", "late", "wrong", "dropped", "lost to changes", "replans", "plan took"], [1, 2, 3, 4, 5, 6, 7, 8, 9]);

export const windowRows = (run) =>
  run.numbers.slice(-60).reverse().map((number) => {
    const [fate, window] = [run.whole(number), run.windows.get(number)];
    const good = goodOf(fate);
    const wrong = good === null ? null : fate.wrong;
    return [
      window.ended_s === null ? `${number}, not over` : `${number}`,
      window.predicted_goodput === null ? "–" : count(window.predicted_goodput),
      good === null ? "unknown" : count(good), percent(good, fate.received), percent(fate.late, fate.received), percent(wrong, fate.received),
      percent(fate.dropped, fate.received), percent(fate.reconfiguring, fate.received), window.replans, seconds(window.plan_s),
    ];
  });

export { size };
