"""Settings, from the environment alone; `.env.example` documents every variable."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from csp.constants import NONE, SELF

from evalsite.data_folder import (
    FILES,
    IS_INSTALLED,
    default_data_folder,
    demo_data_folder,
    new_encryption_key,
    new_secret_key,
    read_or_make_key,
)
from evalsite.env import Environment, database_settings

BASE_DIR = FILES
ENV = Environment()

# -- Where it runs ---------------------------------------------------------------------------
DEBUG = ENV.flag("EVALSITE_DEBUG")
DEMO = ENV.flag("EVALSITE_DEMO")
DATA_DIR = ENV.path("EVALSITE_DATA_DIR", default_data_folder(ENV.values))
DEMO_DATA_DIR = demo_data_folder(ENV.values)
# Workers write large downloads there and the web process sends them, so both need the same folder.
EXPORTS_DIR = ENV.path("EVALSITE_EXPORTS_DIR", DATA_DIR / "exports")
PORT = ENV.number("PORT", 8000, least=1, most=65535)
LISTEN = ENV.text("EVALSITE_LISTEN", "127.0.0.1")
SITE_URL = ENV.url("EVALSITE_URL", "", schemes=("http", "https"))
PLAIN_HTTP = ENV.flag("EVALSITE_PLAIN_HTTP")
TRUST_PROXY = ENV.flag("EVALSITE_TRUST_PROXY")
SITE_HOST = urlsplit(SITE_URL).hostname or ""
IS_SECURE = not DEBUG and urlsplit(SITE_URL).scheme != "http"

# -- Secrets ---------------------------------------------------------------------------------
SECRET_KEY = ENV.secret("EVALSITE_SECRET_KEY")
ENCRYPTION_KEY = ENV.secret("EVALSITE_ENCRYPTION_KEY")
HAS_OWN_KEYS = bool(SECRET_KEY and ENCRYPTION_KEY)
try:
    SECRET_KEY = SECRET_KEY or read_or_make_key(DATA_DIR / "secret_key", new_secret_key)
    ENCRYPTION_KEY = ENCRYPTION_KEY or read_or_make_key(
        DATA_DIR / "encryption_key", new_encryption_key
    )
except OSError as error:
    ENV.refuse(
        "EVALSITE_DATA_DIR",
        f"The keys cannot be stored in EVALSITE_DATA_DIR ({DATA_DIR}): {error.strerror}.",
        "Name a folder that this process may write to.",
    )
    SECRET_KEY = SECRET_KEY or new_secret_key()
    ENCRYPTION_KEY = ENCRYPTION_KEY or new_encryption_key()
# The only variables that may hold the key of a language model.
MODEL_KEYS = ENV.secrets_starting("EVALSITE_MODEL_KEY_")
if OPENAI_API_KEY := ENV.secret("OPENAI_API_KEY"):
    MODEL_KEYS["OPENAI_API_KEY"] = OPENAI_API_KEY
# The only variables that may fill a header of a target.
TARGET_SECRETS = ENV.secrets_starting("EVALSITE_TARGET_SECRET_")
# The private networks that targets may call; None allows all.
TARGET_NETWORKS = ENV.networks("EVALSITE_TARGET_NETWORKS")
OPENAI_BASE_URL = ENV.url("OPENAI_BASE_URL", "", schemes=("http", "https"))

# -- Application -----------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    "axes",
    "evaluators",
    "runs",
    "evalsite",
    "evalsite.access",
]
MIDDLEWARE = [
    "evalsite.middleware.add_headers",
    "evalsite.middleware.for_anonymous",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "evalsite.middleware.CompressPagesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "evalsite.middleware.for_members",
    "evalsite.middleware.MembersOnlyMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "evalsite.middleware.refuse_nul",
    "evalsite.middleware.UnavailableDataMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "evalsite.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "loaders": [
                ("django.template.loaders.cached.Loader", ["evalsite.template_loader.Loader"])
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "evalsite.middleware.site",
                "runs.home.sidebar.sidebar_context",
            ],
        },
    },
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- Database and work -----------------------------------------------------------------------
# Seconds after which a worker without a heartbeat loses the results it has claimed.
LEASE_S = ENV.number("EVALSITE_LEASE_S", 30, least=2, most=600)
# Minutes after which a run is ended that was started without another longest time; 0 for never.
MAX_RUN_MINUTES = ENV.number("EVALSITE_MAX_RUN_MINUTES", 24 * 60, least=0, most=525_600)
# Seconds after which PostgreSQL gives up a statement of a web process with separate workers; 0 for never.
MAX_STATEMENT_S = ENV.number("EVALSITE_MAX_STATEMENT_S", 60, least=0, most=3600)
# Seconds from the signal that ends a process until its service manager kills it.
STOP_S = ENV.number("EVALSITE_STOP_S", 30, least=10, most=3600)
# A file that a worker touches with every heartbeat, for an external watchdog.
HEARTBEAT_FILE = ENV.text("EVALSITE_HEARTBEAT_FILE")
DATABASE_URL = ENV.secret("DATABASE_URL")
try:
    DATABASES = {"default": database_settings(DATABASE_URL, data_dir=DATA_DIR, lease_s=LEASE_S)}
except ValueError as error:
    ENV.refuse("DATABASE_URL", f"DATABASE_URL {error}.")
    DATABASES = {"default": database_settings("", data_dir=DATA_DIR, lease_s=LEASE_S)}

# Named, not imported: only what queues a task loads it.
TASK_APP = "evalsite.celery.app"
CELERY_BROKER_URL = ENV.secret("CELERY_BROKER_URL", "memory://localhost")
IS_EMBEDDED = CELERY_BROKER_URL.startswith("memory:")
if not IS_EMBEDDED and urlsplit(CELERY_BROKER_URL).scheme not in ("redis", "rediss"):
    ENV.refuse(
        "CELERY_BROKER_URL",
        "CELERY_BROKER_URL names no broker that Evalsite supports.",
        "Write redis://host:6379/0, or leave it out for the embedded worker.",
    )
# Processes that answer requests. The embedded worker and its broker live in one.
WEB_PROCESSES = ENV.number("EVALSITE_WEB_PROCESSES", 1 if IS_EMBEDDED else 2, least=1, most=64)
if IS_EMBEDDED and WEB_PROCESSES > 1:
    ENV.refuse(
        "EVALSITE_WEB_PROCESSES",
        f"EVALSITE_WEB_PROCESSES is {WEB_PROCESSES}, and the embedded worker lives in one process.",
        "Leave it out, or start separate workers and name their broker in CELERY_BROKER_URL.",
    )
# A broker that vanished must delay neither the request that starts a run nor a worker: calls time out
# within seconds, and a worker reconnects for as long as it takes.
REDIS_OPTIONS = {
    "socket_timeout": 2,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 10,
    # For tasks that a dead worker had fetched and not started. The reaper queues them again much earlier.
    "visibility_timeout": 300,
}
CELERY_BROKER_TRANSPORT_OPTIONS = {"polling_interval": 0.02} if IS_EMBEDDED else REDIS_OPTIONS
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# Affects only tasks that are acknowledged late. Ours are acknowledged before they start.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_TASK_IGNORE_RESULT = True
# A run keeps hundreds of calls in flight in one event loop, so threads of one process serve several runs.
# Setting it here overrides `--pool prefork`: no process may fork with an open database pool.
CELERY_WORKER_POOL = "threads"
# One more than the runs of one member may take.
CELERY_WORKER_CONCURRENCY = 5
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# With a task in hand that waits for a thread, Celery would not survive the loss of Redis: giving the task back fails,
# and the worker takes no other work until its runs have ended.
CELERY_WORKER_DISABLE_PREFETCH = not IS_EMBEDDED

# -- Scripts and commands --------------------------------------------------------------------
# Without this switch no program of a suite or a target is ever started.
SCRIPTS = ENV.flag("EVALSITE_SCRIPTS")
SCRIPTS_NETWORK = ENV.flag("EVALSITE_SCRIPTS_NETWORK")
# The limits of one program.
SCRIPT_SECONDS = ENV.number("EVALSITE_SCRIPT_SECONDS", 600, least=1, most=3600)
SCRIPT_MEMORY_MB = ENV.number("EVALSITE_SCRIPT_MEMORY_MB", 1024, least=32, most=1_048_576)
SCRIPT_PROCESSES = ENV.number("EVALSITE_SCRIPT_PROCESSES", 64, least=1, most=10_000)
SCRIPT_OUTPUT_KB = ENV.number("EVALSITE_SCRIPT_OUTPUT_KB", 8192, least=1, most=65_536)
SCRIPT_DISK_MB = ENV.number("EVALSITE_SCRIPT_DISK_MB", 256, least=1, most=1_048_576)
SCRIPT_FILES = ENV.number("EVALSITE_SCRIPT_FILES", 1000, least=1, most=100_000)
# How many programs run at once in one worker process; 0 means two for each processor.
SCRIPT_CONCURRENCY = ENV.number("EVALSITE_SCRIPT_CONCURRENCY", 0, least=0, most=1000)
SCRIPT_PYTHON = ENV.program("EVALSITE_SCRIPT_PYTHON")
SCRIPT_FOLDERS = ENV.folders("EVALSITE_SCRIPT_FOLDERS")
AGENTS_DIR = ENV.folder("EVALSITE_AGENTS_DIR")

# -- Logging in ------------------------------------------------------------------------------
# The provider that members sign in with; "" for none. README, "Signing in with your organisation".
OIDC_ISSUER = ENV.url("EVALSITE_OIDC_ISSUER", "", schemes=("http", "https"))
OIDC_NAME = ENV.text("EVALSITE_OIDC_NAME", urlsplit(OIDC_ISSUER).hostname or "") * bool(OIDC_ISSUER)
OIDC_CLIENT_ID = ENV.text("EVALSITE_OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = ENV.secret("EVALSITE_OIDC_CLIENT_SECRET")
OIDC_SCOPES = ENV.text("EVALSITE_OIDC_SCOPES", "openid profile email")
OIDC_ADMIT = ENV.choice(
    "EVALSITE_OIDC_ADMIT", "invited", choices=("invited", "groups", "everybody")
)
OIDC_GROUPS_CLAIM = ENV.text("EVALSITE_OIDC_GROUPS_CLAIM", "groups")
# The role of each group; without any, the provider changes no role.
OIDC_ROLES = ENV.pairs("EVALSITE_OIDC_ROLES")
OIDC_TRUST_EMAIL = ENV.flag("EVALSITE_OIDC_TRUST_EMAIL")
PASSWORD_LOGIN = ENV.flag("EVALSITE_PASSWORD_LOGIN", default=True)
LOGIN_URL = "access:login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "access:login"
# Lifetime in seconds of links for setting a password and for logging in once.
PASSWORD_RESET_TIMEOUT = 24 * 60 * 60
# The roles that must have a second factor; "all" for everybody.
REQUIRE_SECOND_FACTOR = [role.lower() for role in ENV.texts("EVALSITE_REQUIRE_SECOND_FACTOR")]
# Minutes after a login or confirmation in which sensitive actions do not ask again; 0 for never asking.
CONFIRM_MINUTES = ENV.number("EVALSITE_CONFIRM_MINUTES", 30, least=0, most=14 * 24 * 60)
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
] + [
    # What somebody who attacks this site would try besides.
    {
        "NAME": "django.contrib.auth.password_validation.CommonPasswordValidator",
        "OPTIONS": {"password_list_path": Path(__file__).with_name("access") / "site_words.txt"},
    }
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
# Login throttle: after this many failures for a name from one address comes a pause. Attempts during the
# pause do not prolong it.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=5)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_HANDLER = "evalsite.access.logins.AttemptsHandler"
AXES_CLIENT_IP_CALLABLE = "evalsite.access.logins.client_address"
AXES_LOCKOUT_CALLABLE = "evalsite.access.logins.locked_out"
AXES_SENSITIVE_PARAMETERS = ["username", "csrfmiddlewaretoken", "code", "state"]
# The audit has logins, for those who may change members.
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False

# What one client of the API may do in a minute, counted by each web process; 0 is no limit.
API_REQUESTS_PER_MINUTE = ENV.number(
    "EVALSITE_API_REQUESTS_PER_MINUTE", 600, least=0, most=1_000_000
)
API_WRONG_TOKENS_PER_MINUTE = ENV.number(
    "EVALSITE_API_WRONG_TOKENS_PER_MINUTE", 30, least=0, most=1_000_000
)

# Which traces stay in the inbox: a share of those that are for no run, for some days, in so many megabytes at most.
TRACES_SAMPLED_PCT = ENV.number("EVALSITE_TRACES_SAMPLED_PCT", 100, least=0, most=100)
TRACES_DAYS = ENV.number("EVALSITE_TRACES_DAYS", 14, least=1, most=3650)
TRACES_MB = ENV.number("EVALSITE_TRACES_MB", 500, least=1, most=1_000_000)

# -- Security --------------------------------------------------------------------------------
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *ENV.texts("EVALSITE_ALLOWED_HOSTS")]
if SITE_HOST:
    ALLOWED_HOSTS.append(f"[{SITE_HOST}]" if ":" in SITE_HOST else SITE_HOST)
CSRF_TRUSTED_ORIGINS = [f"{urlsplit(SITE_URL).scheme}://{urlsplit(SITE_URL).netloc}"] * bool(
    SITE_URL
)
CSRF_FAILURE_VIEW = "evalsite.views.csrf_failure"
CSRF_COOKIE_HTTPONLY = True
SESSION_ENGINE = "evalsite.access.sessions"
SESSION_COOKIE_AGE = 14 * 24 * 60 * 60
# Browsers take a cookie of such a name from this host alone, and only by https.
COOKIE_PREFIX = "__Host-" if IS_SECURE else ""
SESSION_COOKIE_NAME = f"{COOKIE_PREFIX}evalsite_session"
CSRF_COOKIE_NAME = f"{COOKIE_PREFIX}evalsite_csrf"
SIGN_IN_COOKIE_NAME = f"{COOKIE_PREFIX}evalsite_sign_in"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_SECURE
SECURE_SSL_REDIRECT = IS_SECURE
SECURE_SSL_HOST = urlsplit(SITE_URL).netloc or None
# Tokens are refused by http instead: a redirect would hide from programs that theirs travels in clear.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^api/(?!docs/)"]
SECURE_HSTS_INCLUDE_SUBDOMAINS = IS_SECURE and ENV.flag("EVALSITE_HSTS_SUBDOMAINS")
SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60 if IS_SECURE else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRUST_PROXY else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# We cannot promise that hosts below ours speak TLS, and preloading is for the owner of the domain.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        # Its successor, report-to, needs https, and browsers that know both leave this one out.
        "report-uri": "/csp-report",
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 32 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000
# A folder is uploaded file by file: an import takes 2,000, and other fields have files too.
DATA_UPLOAD_MAX_NUMBER_FILES = 2_010

# -- Files, time, language -------------------------------------------------------------------
STATIC_URL = "/static/"
# Everything in it is served, so notes about it are kept beside it. Installed packages may be read-only.
STATIC_ROOT = (DATA_DIR if IS_INSTALLED else BASE_DIR) / "staticfiles" / "served"
STATIC_MANIFEST = STATIC_ROOT.parent / "manifest.json"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "evalsite.static_files.PlotlyFinder",
]
# In order: of equal rules the later one wins. `collectstatic` joins them into one file.
STYLE_SHEETS = (
    *("fonts", "tokens", "base", "layout", "marks", "forms", "content"),
    *("evaluators", "runs", "suites"),
)
# Hashed names need `collectstatic`, which the scripts run. Without it files are served from source.
IS_COLLECTED = not DEBUG and STATIC_MANIFEST.exists()
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "evalsite.static_files.SiteStorage"
        if IS_COLLECTED or {"collectstatic", "prepare", "up", "demo"} & set(sys.argv)
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not IS_COLLECTED
WHITENOISE_AUTOREFRESH = DEBUG
# Source maps are megabytes that only a debugger requests.
WHITENOISE_SKIP_COMPRESS_EXTENSIONS = ("map", "png", "jpg", "webp", "gz", "woff", "woff2")
USE_TZ = True
TIME_ZONE = ENV.time_zone("EVALSITE_TIME_ZONE", "UTC")
LANGUAGE_CODE = "en"
USE_I18N = False

# -- API -------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "evalsite.access.tokens.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["evalsite.access.tokens.MayView"],
    "DEFAULT_THROTTLE_CLASSES": ["evalsite.access.rate_limits.RequestLimit"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["runs.api.bodies.BodyParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "runs.api.schema.problem_response",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Evalsite",
    "VERSION": "1",
    "DESCRIPTION": "Reads suites, cases, runs and results, starts runs, and takes outputs for them. Scores and "
    "shares are numbers from 0 to 1, costs US dollars as text, durations milliseconds, times ISO "
    "8601. A missing value is null, never 0. Errors are problem details (RFC 9457).",
    "OAS_VERSION": "3.1.0",
    "TAGS": [
        {"name": "suites", "description": "Suites, their versions and their cases"},
        {"name": "runs", "description": "Runs, and two of them compared"},
        {"name": "targets", "description": "The systems under test"},
        {"name": "models", "description": "Language models of judges and targets"},
        {"name": "traces", "description": "Traces of agents, by OpenTelemetry"},
        {"name": "results", "description": "One result for each case and repetition"},
        {"name": "reviews", "description": "The review queue and decisions of people"},
        {"name": "comments", "description": "Comments of members"},
        {"name": "shares", "description": "Links that open a frozen page without an account"},
        {"name": "campaigns", "description": "Runs started together, ranked"},
        {"name": "files", "description": "The same as files; workers prepare large ones"},
        {"name": "about", "description": "The API itself"},
    ],
    "SERVE_PERMISSIONS": ["evalsite.access.tokens.MayView"],
    "SERVE_INCLUDE_SCHEMA": False,
    # Choices are listed where they are used.
    "POSTPROCESSING_HOOKS": [],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}

# -- Logging ---------------------------------------------------------------------------------
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# A reader of the log could open what these addresses lead to.
SECRET_PATH = re.compile(r"(?<!\S)(/(?:s|login|password|sign-in)/)(?=\S).*")


def is_not_health_check(record: logging.LogRecord) -> bool:
    """Drop failing health checks: their clients already have the answer."""
    return getattr(getattr(record, "request", None), "path", "") != "/healthz"


def mask_secret_paths(record: logging.LogRecord) -> bool:
    """Mask the secret part of share links and login links; keep every record."""
    message = record.getMessage()
    masked = SECRET_PATH.sub(r"\1…", message)
    if masked != message:
        record.msg, record.args = masked, ()
    return True


def shorten_refusals(record: logging.LogRecord) -> bool:
    """Log a refused request without its traceback, and leave outages to the page that logs them in one line."""
    status = getattr(record, "status_code", 500)
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        record.exc_info = None
    return bool(status != HTTPStatus.SERVICE_UNAVAILABLE)


class LogLine(logging.Formatter):
    """One line for each record, with the time in UTC and no character that ends a line or moves a terminal's cursor."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the time with its offset."""
        return datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line; a traceback below it stays as it is."""
        text = super().formatMessage(record)
        return CONTROL_CHARACTERS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


LOG_FILTERS = {
    "health_checks": is_not_health_check,
    "refusals": shorten_refusals,
    "secret_paths": mask_secret_paths,
}
# Write every entry of the audit to the log too, with its names and values.
AUDIT_LOG = ENV.flag("EVALSITE_AUDIT_LOG")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_LEVEL = ENV.choice("EVALSITE_LOG_LEVEL", "INFO", LOG_LEVELS)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        name: {"()": "django.utils.log.CallbackFilter", "callback": callback}
        for name, callback in LOG_FILTERS.items()
    },
    "formatters": {
        "line": {"()": LogLine, "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s"}
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": list(LOG_FILTERS),
        }
    },
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        # A site that turns it on wants every entry, whatever its log level.
        "evalsite.audit": {"level": "INFO"},
        # It logs every call of a model, and the ledger records those.
        "httpx2": {"level": "WARNING"},
        # It logs details of every login.
        "axes": {"level": "WARNING"},
        # It logs every task twice, and the pages of runs show more.
        "celery": {"level": "WARNING"},
    },
}
