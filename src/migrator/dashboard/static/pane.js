// One run on the page: its facts, its windows, its slices, its tenants, its lists.

import { accuracy, arrivals, fates } from "./charts.js";
import { goodOf, PARTS, parts } from "./run.js";
import { Slices } from "./slices.js";
import { follow, get } from "./stream.js";
import { Strip } from "./strip.js";
import { Summary } from "./summary.js";
import * as tables from "./tables.js";
import { count, goodput, lasting, make, percent } from "./words.js";

const SILENT_S = 5;

export class Pane {
  constructor(run, about, actions, hooks) {
    Object.assign(this, { run, about, actions, hooks });
    this.open = null; // a window's number; null: the newest
    this.whole = false; // all of the history instead of one window
    this.cursor = null;
    this.lost = "";
    this.build();
  }

  start() {
    const begin = async () => {
      const update = await get(this.run.path);
      this.run.clear();
      this.receive(update);
      setTimeout(() => this.remember(), 50); // what is new must not wait for it
      return update.marker;
    };
    this.stop = follow(this.run.path, begin, (update) => this.receive(update), (why, status) => {
      this.lost = why || "the server has ended the stream";
      this.hooks.lost(this, status);
      this.facts();
    });
  }

  async remember() {
    try {
      this.run.remember(await get(`${this.run.path}/history`));
      this.draw();
    } catch (error) {
      this.lost = error.message;
    }
  }

  receive(update) {
    this.lost = "";
    this.run.merge(update);
    if (this.run.lastRun > this.run.about.run && this.hooks.newer(this)) return;
    this.draw();
    this.hooks.drawn(this);
  }

  get number() {
    return this.open ?? this.run.numbers.at(-1) ?? 0;
  }

  get range() {
    if (!this.whole) return this.run.span(this.number);
    const numbers = this.shownWindows;
    return [this.run.span(numbers[0] ?? 0)[0], this.run.span(numbers.at(-1) ?? 0)[1]];
  }

  get shownWindows() {
    if (!this.whole) return [this.number];
    const since = this.run.span(this.run.numbers.at(-1) ?? 0)[0] - 3600;
    return this.run.numbers.filter((each) => this.run.span(each)[1] > since).slice(-200);
  }

  async show(number, newest) {
    this.open = newest && this.run.ended === null ? null : number;
    this.whole = false;
    this.draw();
    this.hooks.opened(this, number);
    if (!this.run.has(number)) {
      try {
        this.run.keep(number, await get(`${this.run.path}/windows/${number}`));
      } catch (error) {
        this.lost = error.message;
      }
      this.draw();
    }
  }

  build() {
    this.summary = new Summary();
    this.list = make("dl", { class: "facts" });
    this.strip = new Strip((number, newest) => this.show(number, newest));
    this.slices = new Slices();
    this.follow = make("button", { type: "button", text: "Newest", "data-view": "newest" });
    this.follow.addEventListener("click", () => this.show(this.run.numbers.at(-1), true));
    this.all = make("button", { type: "button", text: "Last hour", "data-view": "hour" });
    this.all.addEventListener("click", () => {
      this.whole = !this.whole;
      this.draw();
    });
    this.title = make("h2");
    this.note = make("span", { class: "note" });
    this.slicesLegend = make("ul", { class: "legend" });
    this.outcomesLegend = make("ul", { class: "legend" });
    this.tenants = make("div");
    this.rows = new Map();
    this.lists = [
      [tables.unitsList(this.run.palette), tables.unitRows], [tables.windowsList(), tables.windowRows],
      [tables.happeningsList(), tables.happeningRows],
    ];
    if (!this.run.simulated) this.lists.push([tables.actionsList(), tables.actionRows]);
    this.element = make("article", { class: "pane", "aria-label": `${this.run.about.scenario} under ${this.run.about.policy}` },
      make("section", { class: "card", "aria-label": "The run" }, this.summary.element, this.list),
      make("section", { class: "card", "aria-label": "Windows and slices" },
        make("div", { class: "head" }, this.title, this.note, make("span", { class: "right" }, this.follow, this.all)),
        this.strip.element, this.slices.element, this.slicesLegend),
      make("section", { class: "card", "aria-label": "Tenants" }, this.tenants, this.outcomesLegend),
      make("div", { class: "lists" }, ...this.lists.map(([list]) => list.element)));
  }

  draw() {
    const { run, range } = this;
    const window = run.windows.get(this.number);
    this.facts();
    this.strip.draw(run, this.number);
    this.title.textContent = this.whole ? `Windows ${this.shownWindows[0] ?? ""} to ${this.shownWindows.at(-1) ?? ""}` : `Window ${this.number}`;
    this.note.textContent = this.words(window);
    this.follow.setAttribute("aria-pressed", this.open === null && !this.whole);
    this.follow.hidden = run.ended !== null;
    this.all.textContent = run.ended === null ? "Last hour" : "All windows";
    this.all.setAttribute("aria-pressed", this.whole);
    this.slices.draw(run, range, this.shownWindows);
    this.legend();
    for (const tenant of run.tenants) this.tenant(tenant);
    for (const [list, rows] of this.lists) list.draw(rows(run));
  }

  words(window) {
    if (!window) return this.run.heardAt === null ? "" : "the first window has not begun";
    const numbers = this.shownWindows;
    const fates = numbers.map((each) => this.run.whole(each));
    const goods = fates.map(goodOf);
    const good = goods.includes(null) ? null : goods.reduce((sum, each) => sum + each, 0);
    const received = fates.reduce((sum, each) => sum + each.received, 0);
    const promises = numbers.map((each) => this.run.windows.get(each)?.predicted_goodput ?? null);
    const promised = promises.includes(null) ? "" : `, ${count(promises.reduce((sum, each) => sum + each, 0))} promised`;
    return `${goodput(good, received)}${promised}`;
  }

  facts() {
    const { run } = this;
    const window = run.windows.get(run.numbers.at(-1));
    const silent = run.heardAt === null ? 0 : (performance.now() - run.heardAt.page) / 1000;
    const entries = [
      ["scenario", run.about.scenario], ["board", run.about.board], ["driver", run.about.driver], ["policy", run.about.policy],
      ["window", window ? `${window.window}` : "–"],
    ];
    const items = entries.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value })));
    if (window && run.ended === null) items.push(this.progress(window));
    const trouble = this.trouble(silent);
    const quiet = run.ended !== null ? (run.simulated ? "simulated" : "ended") : run.heardAt === null ? "loading …" : "live";
    items.push(make("div", {}, make("dt", { text: "state" }), make("dd", { class: trouble ? "state bad" : "state", text: trouble || quiet })));
    this.list.replaceChildren(...items);
    this.summary.draw(run, trouble);
  }

  progress(window) {
    const slots = Math.round(this.run.about.window_s / this.run.about.slot_s);
    const slot = Math.min(slots - 1, Math.max(0, Math.floor((this.run.now - window.began_s) / this.run.about.slot_s)));
    return make("div", {}, make("dt", { text: "slot" }), make("dd", { text: `${slot + 1} of ${slots}` }),
      make("progress", { max: slots, value: slot + 1, "aria-label": `slot ${slot + 1} of ${slots}` }));
  }

  /** What keeps the page from being up to date; empty if nothing does. */
  trouble(silent) {
    if (this.run.ended !== null) return "";
    if (this.lost) return `no connection: ${this.lost}`;
    if (this.run.heardAt === null) return "";
    const last = this.lastMoment();
    const quiet = this.run.now - last;
    if (last > 0 && quiet > SILENT_S + this.run.about.slot_s) return `nothing written for ${lasting(quiet)}`;
    return silent > 15 ? `no update for ${lasting(silent)}` : "";
  }

  lastMoment() {
    const moments = [...this.run.seconds.values()].map((each) => (each.length ? each.second.at(-1) + 1 + this.run.zero : 0));
    return Math.max(0, ...moments);
  }

  legend() {
    const { run } = this;
    const said = run.tenants.join();
    if (this.legendSaid === said) return;
    this.legendSaid = said;
    const swatch = (style) => make("span", { class: "swatch", style });
    const tones = run.palette[0];
    const hatch = `repeating-linear-gradient(135deg,${tones.light} 0 3px,${tones.fill} 3px 5px)`;
    this.slicesLegend.replaceChildren(
      ...run.tenants.map((name) => make("li", {}, swatch(`background:${run.tones(name).fill}`), name)),
      make("li", {}, swatch(`background:${hatch}`), "hatched: retrains"),
      make("li", {}, swatch(`background:${tones.light};border:1px dashed ${tones.fill}`), "light: being created, warmed or drained"),
      make("li", {}, swatch("background:var(--faint);border-color:var(--none)"), "grey: no tenant's"));
    this.outcomesLegend.replaceChildren(
      ...["good", "unjudged", "wrong", "late", "dropped", "lost", "failed"].map((name) => make("li", {}, swatch(`background:var(--${name})`), PARTS[name])),
      make("li", {}, swatch("background:var(--none);opacity:0.6"), "forecast, 10% to 90%; dashed: its mean"));
  }

  point(at) {
    this.cursor = at;
    for (const row of this.rows.values()) for (const chart of row.charts) chart.draw(this.run, this.range, at);
  }

  tenant(name) {
    if (!this.rows.has(name)) this.addTenant(name);
    const row = this.rows.get(name);
    for (const chart of row.charts) chart.draw(this.run, this.range, this.cursor);
    const facts = this.tenantFacts(name);
    const why = this.run.notRetrained.get(`${this.number}/${name}`);
    const said = JSON.stringify([facts, why]);
    if (said === row.said) return;
    row.said = said;
    row.facts.replaceChildren(...facts.flatMap(([term, value]) => [make("dt", { text: term }), make("dd", { text: value })]));
    row.why.textContent = why ? `Not retrained: ${why}` : "";
  }

  addTenant(name) {
    const point = (at) => this.point(at);
    const window = () => this.number;
    const charts = [arrivals(name, window, point), fates(name, window, point), accuracy(name, point)];
    const facts = make("dl");
    const why = make("p", { class: "why" });
    const acts = this.about.acts && !this.run.simulated ? make("div", { class: "buttons" }, ...["retrain", "roll-back", "drain", "undrain"].map((kind) => this.actions.button(kind, name))) : null;
    const who = make("div", { class: "who" },
      make("h3", {}, make("span", { class: "swatch", style: `background:${this.run.tones(name).fill}` }), name), facts, why, acts);
    this.rows.set(name, { charts, facts, why, said: "" });
    this.tenants.append(make("div", { class: "tenant", role: "group", "aria-label": name }, who, ...charts.map((each) => each.element)));
  }

  tenantFacts(name) {
    const { run } = this;
    const fate = run.fate(name, this.number);
    const found = parts(fate);
    const version = run.adopted(name).at(-1);
    const known = run.accuracies(name).at(-1);
    const trains = run.retrainings.get(name);
    const workers = [...run.units.values()].filter((each) => each.to_s === null && each.tenant === name && each.state === "ready");
    const facts = [
      ["received", count(fate.received)],
      ["good", fate.unjudged > 0 ? "unknown" : percent(found.good, fate.received)],
      ["in time", percent(fate.in_time, fate.received)],
      ["lost to changes", percent(found.lost, fate.received)],
      ["accuracy", known ? percent(known[1], 1) : "–"],
      ["by", run.evidence(name) ?? "–"],
      ["version", version ? `${version.number}` : "–"],
    ];
    if (run.ended === null) facts.push(["workers", `${workers.length}`]);
    if (trains && run.ended === null && trains.phase !== "none") {
      const how = trains.phase === "running" ? `${Math.round(100 * trains.progress)}%` : trains.phase;
      facts.push(["retraining", trains.configuration ? `${how} as ${trains.configuration}` : how]);
    }
    return facts;
  }
}
