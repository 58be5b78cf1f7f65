// Follows a patient's state and loads the page again when it changes for good.
const shown = document.getElementById("state");
const every = 2000; // milliseconds

async function follow() {
  try {
    const answer = await fetch(location.pathname, { headers: { accept: "application/json" } });
    const now = await answer.json();
    if (now.state === "done" || now.state === "failed") return location.reload();
    const words = now.words ? now.words[0].toUpperCase() + now.words.slice(1) : "";
    const text = now.state === "running" ? `${words} …` : `Waiting; ${now.before} before this one.${words ? ` ${words}.` : ""}`;
    if (shown.textContent !== text) shown.textContent = text;
  } catch {
    shown.textContent = "The service does not answer; trying again.";
  }
  setTimeout(follow, every);
}

setTimeout(follow, every);
