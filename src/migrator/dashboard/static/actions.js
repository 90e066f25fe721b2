// Acting on the daemon: every action asks first, shows its outcome, and is in the list.

import { make } from "./words.js";
import { get, post, token } from "./stream.js";

const WORDS = {
  pause: "From now on nothing is created, moved or removed; what serves goes on serving.",
  resume: "The newest plan is followed from now on.",
  replan: "The policy is asked for a new plan at once.",
  "roll-back": "The version before the one that serves takes over in every worker.",
  drain: "No new requests are accepted; those that wait are answered, and others get its slices.",
  undrain: "Requests are accepted again, and the next plan gives it a place.",
  retrain: "It is retrained on its labels up to now as soon as there is room, whether it pays or not.",
};
const NAMES = { pause: "Pause", resume: "Resume", replan: "Replan now", "roll-back": "Roll back", drain: "Drain", undrain: "Take in again", retrain: "Retrain now" };
const NO_TOKEN = "needs the token for administration, which was not typed in";

export class Actions {
  constructor(about, say) {
    this.about = about;
    this.say = say;
    this.status = {};
    this.buttons = new Set();
  }

  get allowed() {
    return this.about.acts && (!this.about.needs_token || token.get() !== "");
  }

  /** A button for an action, on one tenant or on all. */
  button(kind, tenant = null) {
    const button = make("button", { type: "button", text: NAMES[kind], "data-action": kind });
    button.dataset.tenant = tenant ?? "";
    button.addEventListener("click", () => this.ask(kind, tenant, button));
    this.buttons.add(button);
    this.enable(button);
    return button;
  }

  enable(button) {
    const { action, tenant } = button.dataset;
    let why = this.allowed ? "" : NO_TOKEN;
    const { paused, drained, previous } = this.status;
    if (!why && action === "roll-back" && previous && previous[tenant]?.length === 0) why = "there is no earlier version";
    button.disabled = why !== "";
    button.title = why ? `${NAMES[action]}: ${why}` : WORDS[action];
    const isDrained = (drained ?? []).includes(tenant);
    button.hidden = (action === "pause" && paused === true) || (action === "resume" && paused === false)
      || (action === "drain" && isDrained) || (action === "undrain" && drained !== undefined && !isDrained);
  }

  refresh() {
    for (const each of this.buttons) {
      if (each.isConnected) this.enable(each);
      else this.buttons.delete(each);
    }
  }

  /** How the daemon stands, as far as the buttons need it. */
  async look() {
    if (!this.allowed) return this.refresh();
    try {
      const status = await get("/admin/status");
      this.status = {
        paused: typeof status.paused === "boolean" ? status.paused : undefined,
        drained: Array.isArray(status.drained) ? status.drained : undefined,
        previous: Object.fromEntries(Object.entries(status.tenants ?? {}).map(([name, each]) => [name, each.back_to])),
      };
    } catch {
      this.status = {};
    }
    return this.refresh();
  }

  ask(kind, tenant, button) {
    const dialog = document.getElementById("confirm");
    document.getElementById("confirm-title").textContent = tenant ? `${NAMES[kind]}: ${tenant}?` : `${NAMES[kind]}?`;
    document.getElementById("confirm-words").textContent = WORDS[kind];
    dialog.returnValue = "cancel";
    dialog.onclose = async () => {
      if (dialog.returnValue === "act") await this.act(kind, tenant);
      button.focus();
    };
    dialog.showModal();
  }

  async act(kind, tenant) {
    const what = tenant ? `${NAMES[kind]}, ${tenant}` : NAMES[kind];
    this.say(`${what}: …`);
    try {
      const { outcome, words } = await post("/admin/actions", { action: kind, tenant });
      this.say(`${what}: ${outcome}. ${words}`, outcome !== "done");
    } catch (error) {
      this.say(`${what}: ${error.message}`, true);
    }
    await this.look();
  }
}
