// Asks the browser for a passkey, or to make one, and sends its answer with a form; loaded on pages that use them.

const WORDS = {
  NotAllowedError: "No passkey was used. Try again, or go on without.",
  InvalidStateError: "This device has a passkey of yours already.",
  SecurityError: "The browser keeps no passkeys for this address.",
};

const fromText = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
const toText = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

// Browsers that can read and write JSON of passkeys themselves are younger than those that have passkeys.
function readOptions(options) {
  const withId = (descriptor) => ({ ...descriptor, id: fromText(descriptor.id) });
  const read = { ...options, challenge: fromText(options.challenge) };
  if (options.user) read.user = withId(options.user);
  for (const name of ["allowCredentials", "excludeCredentials"]) read[name] = options[name]?.map(withId) ?? [];
  return read;
}

function answerText({ id, rawId, type, response }) {
  const names = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"];
  const parts = names.filter((name) => response[name]).map((name) => [name, toText(response[name])]);
  const answer = Object.fromEntries(parts);
  return JSON.stringify({ id, rawId: toText(rawId), type, response: answer, clientExtensionResults: {} });
}

async function ask(form) {
  const reply = await fetch(form.dataset.question, { headers: { Accept: "application/json" } });
  if (!reply.ok || reply.redirected) throw new Error("The site did not answer. Open the page again.");
  const { options, state } = await reply.json();
  const answer = await navigator.credentials[form.dataset.passkey]({ publicKey: readOptions(options) });
  const prefix = form.dataset.passkeyPrefix ?? "";
  form.elements[`${prefix}answer`].value = answerText(answer);
  form.elements[`${prefix}state`].value = state;
  form.submit();
}

function prepare(form) {
  const status = form.querySelector("[data-passkey-status]") ?? document.querySelector("[data-passkey-status]");
  const own = form.querySelector("[data-use-passkey]");
  const outside = form.id && document.querySelector(`[data-passkey-button][form="${form.id}"]`);
  for (const part of [form, own, outside]) if (part) part.hidden = false;
  if (status) status.textContent = "";
  form.addEventListener("submit", async (event) => {
    // A form that takes other proofs too asks for a passkey by its own button alone.
    if (form.dataset.passkeyPrefix && event.submitter !== own) return;
    event.preventDefault();
    if (status) status.textContent = "Waiting for your passkey…";
    try {
      await ask(form);
    } catch (error) {
      if (status) status.textContent = WORDS[error.name] ?? error.message;
    }
  });
}

if (window.isSecureContext && window.PublicKeyCredential) {
  for (const form of document.querySelectorAll("form[data-passkey]")) prepare(form);
}
