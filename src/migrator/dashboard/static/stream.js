// Talking to the server: JSON with the token, and server-sent events read from a plain fetch,
// as EventSource cannot send a token.

const KEY = "migrator-token";
const HIDDEN_MS = 3000;

export class RefusedError extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

const headers = () => (token.get() ? { authorization: `Bearer ${token.get()}` } : {});

const refusal = async (answer) => {
  let words = `the server answers with status ${answer.status}`;
  try {
    words = (await answer.json()).error || words;
  } catch {
    // not JSON: the status says it
  }
  return new RefusedError(answer.status, words);
};

export const get = async (path) => {
  const answer = await fetch(path, { headers: headers(), cache: "no-store" });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
};

export const post = async (path, body) => {
  const answer = await fetch(path, {
    method: "POST",
    headers: { ...headers(), "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
};

/** Every event's data of one connection; it ends when the server or `signal` ends it. */
async function* events(path, signal) {
  const answer = await fetch(path, { headers: headers(), cache: "no-store", signal });
  if (!answer.ok) throw await refusal(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: "));
      if (data.length) yield data.map((line) => line.slice(6)).join("\n");
    }
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A signal to give a connection up where the page is hidden: a browser has six for one server. */
const looking = (ending) => {
  const one = new AbortController();
  let timer = null;
  const end = () => one.abort();
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(end, HIDDEN_MS);
  };
  look();
  document.addEventListener("visibilitychange", look);
  ending.addEventListener("abort", end);
  const done = () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
    ending.removeEventListener("abort", end);
  };
  return [one.signal, done];
};

const looked = () =>
  new Promise((resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });

/**
 * Follow a run: `receive` gets every update, `lost` why there is none. It connects again by itself;
 * `begin` reads the run anew and returns its marker, after a restart or a long absence.
 */
export const follow = (path, begin, receive, lost) => {
  const ending = new AbortController();
  const run = async () => {
    let marker = null;
    let wait = 500;
    while (!ending.signal.aborted) {
      const [signal, done] = looking(ending.signal);
      try {
        marker ??= await begin();
        for await (const data of events(`${path}/news?after=${marker}`, signal)) {
          const update = JSON.parse(data);
          marker = update.marker;
          receive(update);
          wait = 500;
        }
        lost("");
      } catch (error) {
        if (ending.signal.aborted) return;
        const gone = error.status === 404 && marker === null; // the run, not only the marker
        if (gone || error.status === 401 || error.status === 403) return lost(error.message, error.status);
        if (error.status === 404) marker = null;
        if (!signal.aborted) lost(error.message);
      } finally {
        done();
      }
      await (signal.aborted ? looked() : pause(wait));
      wait = Math.min(5000, 1.6 * wait);
    }
  };
  run().catch((error) => lost(error.message, error.status));
  return () => ending.abort();
};
