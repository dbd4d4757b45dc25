// Shows every call of the API with a form to try it; loaded on that page alone. Its theme is the site's.

const place = document.getElementById("api");
const dark = matchMedia("(prefers-color-scheme: dark)");

function follow() {
  const chosen = document.querySelector('[name="theme"]:checked')?.value;
  const isDark = chosen === "dark" || (chosen !== "light" && dark.matches);
  document.documentElement.classList.toggle("dark-mode", isDark);
}

follow();
dark.addEventListener("change", follow);
document.addEventListener("change", ({ target }) => { if (target.name === "theme") follow(); });

SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  // Colours in an answer of megabytes would hold up the page.
  syntaxHighlight: false,
  validatorUrl: null,
  supportedSubmitMethods: ["get"],
  // The page has its main part already; what can be focused would stay a second one.
  onComplete: () => {
    for (const main of place.querySelectorAll("main")) {
      main.setAttribute("role", "presentation");
      main.removeAttribute("tabindex");
    }
  },
});
