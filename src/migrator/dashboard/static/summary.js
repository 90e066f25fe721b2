// What the page leads with: goodput, SLO attainment and alerts.

import { goodOf } from "./run.js";
import { count, make, percent, rate } from "./words.js";

const NOW_S = 10;
const ALERT_S = 300;
const HOUR_S = 3600;
const LEAST = 30; // requests without which a share says little
const LEAST_IN_TIME = 0.9;
const LEAST_OF_HOUR = 0.7;

const sum = (fates) => {
  const whole = { received: 0, in_time: 0, wrong: 0, unjudged: 0, late: 0, dropped: 0, failed: 0, reconfiguring: 0 };
  for (const each of fates) for (const name of Object.keys(whole)) whole[name] += each[name] ?? 0;
  return whole;
};

/** All windows that have ended, of a tenant or of all. */
const ended = (run, tenant) => {
  const numbers = run.numbers.filter((each) => run.windows.get(each).ended_s !== null);
  return sum(numbers.map((each) => (tenant === null ? run.whole(each) : run.fate(tenant, each))));
};

const isDrained = (run, tenant) => {
  const kinds = run.actions.filter((each) => each.tenant === tenant && each.outcome === "done").map((each) => each.kind);
  return kinds.filter((each) => each === "drain" || each === "undrain").at(-1) === "drain";
};

/** The conditions of the alert rules that the page can see, and `trouble` with the records. */
export const alerts = (run, trouble) => {
  const found = trouble ? [trouble] : [];
  const live = run.ended === null;
  for (const tenant of run.tenants) {
    const fate = live ? run.lately(tenant, ALERT_S) : ended(run, tenant);
    const when = live ? "in the last 5 minutes" : "in this run";
    const ready = [...run.units.values()].some((each) => each.to_s === null && each.tenant === tenant && each.state === "ready");
    if (live && run.numbers.length && !ready && !isDrained(run, tenant)) found.push(`No instance serves ${tenant}.`);
    if (fate.received < LEAST) continue;
    if (fate.in_time < LEAST_IN_TIME * fate.received) found.push(`${tenant}: only ${percent(fate.in_time, fate.received)} in time ${when}.`);
    if (fate.failed > 0) found.push(`${tenant}: ${count(fate.failed)} failed ${when}.`);
    const hour = run.lately(tenant, HOUR_S);
    const share = (each) => goodOf(each) / Math.max(1, each.received);
    const isKnown = goodOf(fate) !== null && goodOf(hour) !== null;
    if (live && isKnown && share(fate) < LEAST_OF_HOUR * share(hour)) found.push(`${tenant}: goodput is ${percent(share(fate), 1)}, far below the last hour's.`);
  }
  return found;
};

export class Summary {
  constructor() {
    this.element = make("div", { class: "summary" });
    this.said = "";
  }

  draw(run, trouble) {
    const live = run.ended === null;
    const fate = live ? run.lately(null, NOW_S) : ended(run, null);
    const known = !live || fate.known;
    const good = goodOf(fate);
    const when = live ? `last ${NOW_S} s, ${rate(fate.per_s)} requests/s` : `of ${count(fate.received)} requests`;
    const found = alerts(run, trouble);
    const figures = [
      ["goodput", !known ? "–" : good === null ? "unknown" : percent(good, fate.received), [when], ""],
      ["SLO attainment", known ? percent(fate.in_time, fate.received) : "–", ["answered in time"], ""],
      ["alerts", `${found.length}`, found.length ? found : ["none"], found.length ? "bad" : ""],
    ];
    const said = JSON.stringify(figures);
    if (said === this.said) return;
    this.said = said;
    this.element.replaceChildren(...figures.map(([name, value, words, kind]) =>
      make("div", { class: `figure ${kind}`.trim(), "data-figure": name, role: "group", "aria-label": name },
        make("h2", { text: name }), make("p", { class: "large", text: value }),
        make("ul", {}, ...words.map((text) => make("li", { text }))))));
  }
}
