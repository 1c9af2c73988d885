// Notifies the merchant's app of the outcome and prevents sending the form twice. Without this script the page still
// works, except for the notification.
"use strict";
(() => {
  const main = document.querySelector("main");
  const { origin, messageType, checkoutSessionId, customerId } = main.dataset;
  const app = window.opener ?? (window.parent === window ? null : window.parent);
  const notify = (type) => {
    if (app && origin) {
      const id = customerId || null;
      app.postMessage({ type, checkoutSessionId, connectionId: id, customerId: id }, origin);
    }
  };
  if (messageType) notify(messageType);

  const cancel = document.querySelector("#cancel");
  if (cancel && app) {
    cancel.hidden = false;
    cancel.addEventListener("click", () => {
      notify("checkout_cancel");
      if (window.opener) window.close();
    });
  }

  const form = document.querySelector("form");
  if (!form) return;
  // Browsers ignore `autofocus` in a cross-origin frame.
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
    progress.textContent = button.textContent = "Processing…";
  });
  // The browser restored the page from its back/forward cache.
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    sent = false;
    button.removeAttribute("aria-disabled");
    button.textContent = label;
    progress.textContent = "";
  });
})();
