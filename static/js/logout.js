// A page without a member: what htmx keeps for Back was shown to one who has logged out, or whose session has ended.

if (!document.body.hasAttribute("hx-headers")) sessionStorage.removeItem("htmx-history-cache");
