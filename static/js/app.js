// What every page loads besides htmx. No inline code, no eval; every page works without it.

import "./preferences.js";
import "./shortcuts.js";
import "./dialogs.js";
import "./palette.js";
import "./clipboard.js";
import "./columns.js";
import "./contact.js";
import "./row-selection.js";
import "./swaps.js";
import "./tabs.js";
import "./waiting.js";
import "./fields.js";
import "./filters.js";
import "./folder-upload.js";
import "./form-rows.js";
import "./review-hold.js";
import "./result-steps.js";
import "./legend.js";
import "./logout.js";
import "./notices.js";
import "./pictures.js";
import "./picture-image.js";
import "./sorting.js";
