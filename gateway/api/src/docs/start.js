// Starts the reference on the document that the page names. Nothing is asked of any other server.
SwaggerUIBundle({
  url: document.currentScript.dataset.document,
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "none",
  validatorUrl: null,
  supportedSubmitMethods: [],
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
