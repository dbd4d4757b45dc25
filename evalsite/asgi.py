"""The application that gunicorn serves: Django, which gets whole requests, counted so that the worker inside yields."""

from __future__ import annotations

from django.core.wsgi import get_wsgi_application

from evalsite import load
from evalsite.embedded import REQUESTS
from evalsite.serving import WholeRequests

load()

application = WholeRequests(get_wsgi_application(), REQUESTS)
