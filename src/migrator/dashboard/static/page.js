// The page: which runs are shown, the token, the buttons; everything about a run is its pane's.

import { Actions } from "./actions.js";
import { drawBeside } from "./beside.js";
import { Pane } from "./pane.js";
import { Run } from "./run.js";
import { get, token } from "./stream.js";
import { make } from "./words.js";

const place = (id) => document.getElementById(id);
const state = { about: null, sources: [], palette: [], panes: [], actions: null };

const say = (words, bad = false) => {
  place("said").textContent = words;
  place("said").classList.toggle("bad", bad);
};

const fault = (words) => {
  place("fault").textContent = words;
  place("fault").hidden = !words;
};

/** Which runs: those of the address, else the newest of every source, or two of one simulation. */
const chosen = () => {
  const named = new URLSearchParams(location.hash.slice(1)).get("runs");
  if (named) {
    const found = named.split(",").map((each) => each.split(".").map(Number)).filter(([source, run]) => state.sources[source]?.runs.some((each) => each.run === run));
    if (found.length) return found.slice(0, 2);
  }
  const last = state.sources.flatMap((source, at) => (source.runs.length ? [[at, source.runs.at(-1).run]] : []));
  const runs = state.sources[0]?.runs ?? [];
  if (state.sources.length === 1 && runs.length > 1 && runs.at(-1).driver === "simulated") return runs.slice(-2).map((each) => [0, each.run]);
  return last.slice(0, 2);
};

const follows = () => !new URLSearchParams(location.hash.slice(1)).get("runs");

const choose = (runs) => {
  location.hash = `runs=${runs.map((each) => each.join(".")).join(",")}`;
};

const runOf = ([source, number]) => {
  const about = state.sources[source].runs.find((each) => each.run === number);
  return new Run(source, about, state.palette);
};

/** The sources are read anew: a daemon that was started again has another run. */
const reload = async () => {
  const [answer, about] = await Promise.all([get("/dashboard/sources"), state.about ?? get("/dashboard/about")]);
  state.about = about;
  state.sources = answer.sources;
  state.palette = answer.palette;
  for (const [name, fill] of Object.entries(answer.outcomes)) document.documentElement.style.setProperty(`--${name}`, fill);
  show(chosen());
};

const hooks = {
  lost: (pane, status) => {
    if (wantsToken(status)) askToken("");
    else if (status === 404) begin(); // other records than before
  },
  newer: () => {
    if (!follows() || state.sources.length > 1 || state.panes.length > 1) return false;
    reload().catch((error) => fault(error.message));
    return true;
  },
  drawn: () => {
    if (!performance.getEntriesByName("usable").length) performance.mark("usable");
    beside();
  },
  opened: (pane, number) => {
    // the same window of the other run, by its place
    const at = pane.run.numbers.indexOf(number);
    for (const other of state.panes) {
      const same = other.run.numbers[at];
      if (other !== pane && same !== undefined && other.number !== same) other.show(same, false);
    }
  },
};

const beside = () => {
  const shown = state.panes.length === 2 && state.panes.every((pane) => pane.run.numbers.length);
  place("beside").hidden = !shown;
  if (shown) drawBeside(place("beside"), state.panes.map((pane) => pane.run));
};

const show = (runs) => {
  for (const each of state.panes) each.stop?.();
  fault(runs.length ? "" : "There is no run in these records yet; this page looks again by itself.");
  state.actions = new Actions(state.about, say);
  state.panes = runs.map((each) => new Pane(runOf(each), state.about, state.actions, hooks));
  place("panes").classList.toggle("two", runs.length > 1);
  place("panes").replaceChildren(...state.panes.map((each) => each.element));
  place("beside").hidden = true;
  const acts = state.about.acts;
  place("buttons").replaceChildren(...(acts ? ["pause", "resume", "replan"].map((kind) => state.actions.button(kind)) : []));
  if (acts && !state.actions.allowed) place("buttons").append(make("span", { class: "none", text: "actions need the token" }));
  chooser(runs);
  for (const each of state.panes) each.start();
  state.actions.look();
  document.title = runs.length ? `${state.panes[0].run.about.scenario} – MIGRator` : "MIGRator";
};

const label = (source, run) => {
  const many = state.sources.length > 1 ? `${source.name}, ` : "";
  return `${many}run ${run.run}: ${run.scenario}, ${run.policy}`;
};

const chooser = (runs) => {
  const options = state.sources.flatMap((source, at) => source.runs.map((run) => [`${at}.${run.run}`, label(source, run)])).reverse();
  const select = (name, value, extra = []) => {
    const box = make("select", {}, ...[...extra, ...options].map(([key, text]) => make("option", { value: key, text })));
    box.value = value;
    box.addEventListener("change", () => choose([first.value, second.value].filter((each) => each).map((each) => each.split(".").map(Number))));
    return [box, make("label", {}, make("span", { text: name }), box)];
  };
  const [first, shown] = select("run", runs[0]?.join(".") ?? "");
  const [second, other] = select("beside", runs[1]?.join(".") ?? "", [["", "nothing"]]);
  place("choose").replaceChildren(...(options.length > 1 ? [shown, other] : []));
};

/** Without a token a 403 is about the address of this page, and its words say which one to use. */
const wantsToken = (status) => status === 401 || (status === 403 && token.get() !== "");

const askToken = (why) => {
  place("token").hidden = false;
  place("token-why").textContent = why;
  place("token-text").focus();
};

place("token").addEventListener("submit", async (event) => {
  event.preventDefault();
  token.set(place("token-text").value.trim());
  try {
    await reload();
    place("token").hidden = true;
    place("token-text").value = "";
  } catch (error) {
    token.set("");
    askToken(error.message);
  }
});

addEventListener("hashchange", () => show(chosen()));
new ResizeObserver(() => {
  for (const each of state.panes) each.draw();
}).observe(place("panes"));
for (const query of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(query).addEventListener("change", () => {
    for (const each of state.panes) each.draw();
  });
}
setInterval(() => {
  for (const each of state.panes) if (each.run.ended === null) each.facts();
}, 1000);
setInterval(() => {
  if (!state.panes.length && place("token").hidden) reload().catch((error) => fault(error.message));
  else state.actions?.look();
}, 10000);

const begin = async () => {
  try {
    await reload();
  } catch (error) {
    if (wantsToken(error.status)) askToken(token.get() ? error.message : "");
    else {
      fault(`${error.message}; this page tries again by itself.`);
      setTimeout(begin, 2000);
    }
  }
};
begin();
