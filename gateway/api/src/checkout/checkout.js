// Tells the merchant's app how the checkout ended, and keeps a form from being sent twice. The page works without it,
// but for the telling.
"use strict";
(() => {
  const main = document.querySelector("main");
  const { origin, tells, checkoutSessionId, customerId } = main.dataset;
  const app = window.opener ?? (window.parent === window ? null : window.parent);
  const tell = (type) => {
    if (app && origin) {
      const id = customerId || null;
      app.postMessage({ type, checkoutSessionId, connectionId: id, customerId: id }, origin);
    }
  };
  if (tells) tell(tells);

  const cancel = document.querySelector("#cancel");
  if (cancel && app) {
    cancel.hidden = false;
    cancel.addEventListener("click", () => {
      tell("checkout_cancel");
      if (window.opener) window.close();
    });
  }

  const form = document.querySelector("form");
  if (!form) return;
  // In a frame of another origin a browser does not follow `autofocus`.
  const wrong = form.querySelector("[aria-invalid=true]");
  (wrong ?? document.querySelector("#problems"))?.focus();
  wrong?.select();
  const button = form.querySelector("button[type=submit]");
  const progress = document.querySelector("#progress");
  const label = button.textContent;
  let sent = false;
  form.addEventListener("submit", (event) => {
    if (sent) return event.preventDefault();
    sent = true;
    button.setAttribute("aria-disabled", "true");
    progress.textContent = button.textContent = "One moment…";
  });
  // Back from another page, as it was left.
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    sent = false;
    button.removeAttribute("aria-disabled");
    button.textContent = label;
    progress.textContent = "";
  });
})();
