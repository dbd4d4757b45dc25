"""Settings, from the environment alone; `.env.example` documents every variable."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import django_stubs_ext
from csp.constants import NONE, SELF

from evalsite.data_folder import kept_key, new_encryption_key, new_secret_key
from evalsite.env import Environment, database_settings
from evalsite.logs import hides_links, is_news, is_no_probe

# Lets forms and managers name the model they are of, as strict typing wants it.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
ENV = Environment()

# -- Where it runs ---------------------------------------------------------------------------
DEBUG = ENV.flag("EVALSITE_DEBUG")
DEMO = ENV.flag("EVALSITE_DEMO")
DATA_DIR = ENV.path("EVALSITE_DATA_DIR", BASE_DIR / "data")
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
    SECRET_KEY = SECRET_KEY or kept_key(DATA_DIR / "secret_key", new_secret_key)
    ENCRYPTION_KEY = ENCRYPTION_KEY or kept_key(DATA_DIR / "encryption_key", new_encryption_key)
except OSError as error:
    ENV.refuse(
        "EVALSITE_DATA_DIR",
        f"The keys cannot be kept in EVALSITE_DATA_DIR ({DATA_DIR}): {error.strerror}.",
        "Name a folder this process may write to.",
    )
    SECRET_KEY = SECRET_KEY or new_secret_key()
    ENCRYPTION_KEY = ENCRYPTION_KEY or new_encryption_key()
# The only variables that a language model's key may be named by.
MODEL_KEYS = ENV.secrets_starting("EVALSITE_MODEL_KEY_")
if OPENAI_API_KEY := ENV.secret("OPENAI_API_KEY"):
    MODEL_KEYS["OPENAI_API_KEY"] = OPENAI_API_KEY
# The only variables that a header of a target may be filled from.
TARGET_SECRETS = ENV.secrets_starting("EVALSITE_TARGET_SECRET_")
OPENAI_BASE_URL = ENV.url("OPENAI_BASE_URL", "", schemes=("http", "https"))

# -- Application -----------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
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
    "evalsite.middleware.for_anonymous",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "evalsite.middleware.MembersOnlyMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "evalsite.middleware.refuse_nul",
    "evalsite.middleware.OtherVersionsMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "evalsite.urls"
WSGI_APPLICATION = "evalsite.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "evalsite.middleware.site",
                "runs.home.queries.sidebar_context",
            ],
        },
    },
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- Database and work -----------------------------------------------------------------------
# How long a worker that gives no sign of life keeps the results it has claimed, in seconds.
LEASE_S = ENV.number("EVALSITE_LEASE_S", 30, least=2, most=600)
# A file that a worker touches with every beat, for those who watch over it from outside.
HEARTBEAT_FILE = ENV.text("EVALSITE_HEARTBEAT_FILE")
DATABASE_URL = ENV.secret("DATABASE_URL")
try:
    DATABASES = {"default": database_settings(DATABASE_URL, data_dir=DATA_DIR, lease_s=LEASE_S)}
except ValueError as error:
    ENV.refuse("DATABASE_URL", f"DATABASE_URL {error}.")
    DATABASES = {"default": database_settings("", data_dir=DATA_DIR, lease_s=LEASE_S)}

CELERY_BROKER_URL = ENV.secret("CELERY_BROKER_URL", "memory://localhost")
IS_EMBEDDED = CELERY_BROKER_URL.startswith("memory:")
if not IS_EMBEDDED and urlsplit(CELERY_BROKER_URL).scheme not in ("redis", "rediss"):
    ENV.refuse(
        "CELERY_BROKER_URL",
        "CELERY_BROKER_URL names no broker Evalsite knows.",
        "Write redis://host:6379/0, or leave it out for the embedded worker.",
    )
# A broker that vanished without a word must hold up neither the request that starts a run nor a
# worker: an answer is due within seconds, and a worker asks again for as long as it takes.
REDIS_OPTIONS = {
    "socket_timeout": 2,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 10,
    # What a dead worker had fetched and not begun. The reaper queues it again long before.
    "visibility_timeout": 300,
}
CELERY_BROKER_TRANSPORT_OPTIONS = {"polling_interval": 0.02} if IS_EMBEDDED else REDIS_OPTIONS
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# Tasks that are not acknowledged until their end would be cancelled; ours are before they begin.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_TASK_IGNORE_RESULT = True
# Each run keeps hundreds of calls in flight in one event loop: a process of threads serves several.
# Because it is set here, `--pool prefork` does nothing: no process forks with an open database pool.
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = 4
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1

# -- Scripts and commands --------------------------------------------------------------------
# The administrator's switch; without it no program of a suite or a target is ever started.
SCRIPTS = ENV.flag("EVALSITE_SCRIPTS")
SCRIPTS_NETWORK = ENV.flag("EVALSITE_SCRIPTS_NETWORK")
# What one of them may take: seconds, megabytes, processes, kilobytes.
SCRIPT_SECONDS = ENV.number("EVALSITE_SCRIPT_SECONDS", 600, least=1, most=3600)
SCRIPT_MEMORY_MB = ENV.number("EVALSITE_SCRIPT_MEMORY_MB", 1024, least=32, most=1_048_576)
SCRIPT_PROCESSES = ENV.number("EVALSITE_SCRIPT_PROCESSES", 64, least=1, most=10_000)
SCRIPT_OUTPUT_KB = ENV.number("EVALSITE_SCRIPT_OUTPUT_KB", 8192, least=1, most=65_536)
SCRIPT_DISK_MB = ENV.number("EVALSITE_SCRIPT_DISK_MB", 256, least=1, most=1_048_576)
SCRIPT_FILES = ENV.number("EVALSITE_SCRIPT_FILES", 1000, least=1, most=100_000)
# How many of them run at once in one worker process; 0 is two for each processor.
SCRIPT_CONCURRENCY = ENV.number("EVALSITE_SCRIPT_CONCURRENCY", 0, least=0, most=1000)
SCRIPT_PYTHON = ENV.program("EVALSITE_SCRIPT_PYTHON")
SCRIPT_FOLDERS = ENV.folders("EVALSITE_SCRIPT_FOLDERS")
AGENTS_DIR = ENV.folder("EVALSITE_AGENTS_DIR")

# -- Logging in ------------------------------------------------------------------------------
LOGIN_URL = "access:login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "access:login"
# How long a link for setting a password or for logging in once works, in seconds.
PASSWORD_RESET_TIMEOUT = 24 * 60 * 60
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
# The brake on guessing: so many failures of a name from an address, then a pause. Trying during the
# pause does not prolong it; it counts from the last failure before.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=5)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "evalsite.access.login_throttle.client_address"
AXES_LOCKOUT_CALLABLE = "evalsite.access.login_throttle.locked_out"
AXES_SENSITIVE_PARAMETERS = ["username", "csrfmiddlewaretoken"]
# Who logged in when is nobody's business but the member's.
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False

# -- Security --------------------------------------------------------------------------------
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *ENV.names_list("EVALSITE_ALLOWED_HOSTS")]
if SITE_HOST:
    ALLOWED_HOSTS.append(f"[{SITE_HOST}]" if ":" in SITE_HOST else SITE_HOST)
CSRF_TRUSTED_ORIGINS = [f"{urlsplit(SITE_URL).scheme}://{urlsplit(SITE_URL).netloc}"] * bool(
    SITE_URL
)
CSRF_FAILURE_VIEW = "evalsite.views.csrf_failure"
CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 14 * 24 * 60 * 60
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "evalsite_session", "evalsite_csrf"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_SECURE
SECURE_SSL_REDIRECT = IS_SECURE
SECURE_SSL_HOST = urlsplit(SITE_URL).netloc or None
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]
SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60 if IS_SECURE else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRUST_PROXY else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Whether the other hosts of a domain speak TLS is not ours to promise.
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
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 32 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000
# A folder is sent file by file: the 2,000 that an import takes, and those of the other fields.
DATA_UPLOAD_MAX_NUMBER_FILES = 2_010

# -- Files, time, language -------------------------------------------------------------------
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "evalsite.static_files.PlotlyFinder",
]
# In their order; of equal rules the later one wins. `collectstatic` joins them.
STYLE_SHEETS = (
    *("tokens", "base", "layout", "marks", "forms", "content"),
    *("evaluators", "runs", "suites"),
)
# Names with a hash need `collectstatic`, which the scripts run; without it files come from source.
IS_COLLECTED = not DEBUG and (STATIC_ROOT / "staticfiles.json").exists()
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "evalsite.static_files.SiteStorage"
        if IS_COLLECTED or {"collectstatic", "prepare"} & set(sys.argv)
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not IS_COLLECTED
WHITENOISE_AUTOREFRESH = DEBUG
# Maps are megabytes that only a debugger asks for.
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
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "runs.api.schema.refused",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Evalsite",
    "VERSION": "1",
    "DESCRIPTION": "Suites, cases, runs and results to read; nothing can be changed here. Scores and "
    "shares are numbers from 0 to 1, costs US dollars as text, durations milliseconds, times ISO 8601. "
    "What is missing is null, never 0. Every refusal is problem details (RFC 9457).",
    "OAS_VERSION": "3.1.0",
    "TAGS": [
        {"name": "suites", "description": "Suites, their versions and their cases"},
        {"name": "runs", "description": "Runs, and two of them compared"},
        {"name": "results", "description": "What came of each execution"},
        {"name": "campaigns", "description": "Runs started together, ranked"},
        {"name": "about", "description": "The API itself"},
    ],
    "SERVE_PERMISSIONS": ["evalsite.access.tokens.MayView"],
    "SERVE_INCLUDE_SCHEMA": False,
    # The words of a choice stand where they are used.
    "POSTPROCESSING_HOOKS": [],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}

# -- Logging ---------------------------------------------------------------------------------
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_LEVEL = ENV.choice("EVALSITE_LOG_LEVEL", "INFO", LOG_LEVELS)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "no_probe": {"()": "django.utils.log.CallbackFilter", "callback": is_no_probe},
        "no_links": {"()": "django.utils.log.CallbackFilter", "callback": hides_links},
        "news": {"()": "django.utils.log.CallbackFilter", "callback": is_news},
    },
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["no_probe", "news", "no_links"],
        }
    },
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        # It writes a line for every call of a model, which the ledger already holds.
        "httpx2": {"level": "WARNING"},
        # It says of every login what it looks up.
        "axes": {"level": "WARNING"},
        # It says twice for every task what the runs show better.
        "celery": {"level": "WARNING"},
    },
}
