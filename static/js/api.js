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

// The default layout would add a second main element, and links inside buttons, which is not accessible.
function fitIntoPage({ React: { createElement } }) {
  const CallsLayout = ({ getComponent, specSelectors }) => {
    const part = (name) => createElement(getComponent(name, true));
    if (specSelectors.loadingStatus() !== "success") return part("BaseLayout");
    const wide = (name, ...inner) => createElement("div", { className: name }, ...inner);
    return wide("swagger-ui",
      createElement(getComponent("SvgAssets")), part("errors"),
      wide("wrapper information-container", part("InfoContainer")),
      wide("scheme-container", wide("schemes wrapper", part("AuthorizeBtnContainer"))),
      wide("wrapper", part("operations")));
  };
  return {
    components: { CallsLayout },
    wrapComponents: { DeepLink: () => ({ text }) => createElement("span", null, text) },
  };
}

// Adds missing labels, and makes scrollable parts focusable.
function nameParts() {
  for (const row of place.querySelectorAll("tr[data-param-name]")) {
    row.querySelector("select:not([aria-label])")?.setAttribute("aria-label", row.dataset.paramName);
  }
  for (const answers of place.querySelectorAll('[role="region"]:not([aria-label])')) {
    answers.setAttribute("aria-label", answers.id.replaceAll("_", " "));
  }
  for (const text of place.querySelectorAll("pre:not([tabindex])")) text.tabIndex = 0;
}

new MutationObserver(nameParts).observe(place, { childList: true, subtree: true });

SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "CallsLayout",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  // Colours in an answer of megabytes would hold up the page.
  syntaxHighlight: false,
  validatorUrl: null,
  supportedSubmitMethods: ["get"],
  plugins: [fitIntoPage],
});
