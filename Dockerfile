# One image for the web process, the workers and every command. compose.yaml runs it.
FROM python:3.11-slim-bookworm AS build
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy VIRTUAL_ENV=/opt/evalsite PATH=/opt/evalsite/bin:$PATH
WORKDIR /app
# The packages before the code: they change less often.
COPY pyproject.toml requirements.lock requirements-uv.lock ./
RUN pip install --quiet --no-cache-dir --require-hashes -r requirements-uv.lock
RUN uv venv --quiet $VIRTUAL_ENV \
  && uv pip install --quiet --no-cache --require-hashes -r pyproject.toml -c requirements.lock
COPY . .
# Collects the static files. The database and the keys it makes for itself do not stay in the image.
RUN uv pip install --quiet --no-cache --no-deps --editable . \
  && EVALSITE_DATA_DIR=/tmp/build python manage.py prepare \
  && rm -rf /tmp/build \
  && python -m compileall -q evalsite runs evaluators

FROM python:3.11-slim-bookworm
ENV PATH=/opt/evalsite/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
  EVALSITE_DATA_DIR=/data EVALSITE_LISTEN=0.0.0.0
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin evalsite \
  && install -d -m 700 -o evalsite -g evalsite /data /data/exports
COPY --from=build /opt/evalsite /opt/evalsite
COPY --from=build /app /app
WORKDIR /app
# By its number, so that an orchestrator sees that it is not root.
USER 10001:10001
EXPOSE 8000
# Of the web process; whatever runs another command overrides it, as compose.yaml does for workers.
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s CMD ["python", "-c", "\
from http.client import HTTPConnection; web = HTTPConnection('127.0.0.1', 8000, timeout=12); \
web.request('GET', '/healthz?parts=database,broker'); raise SystemExit(web.getresponse().status != 200)"]
CMD ["gunicorn", "-c", "python:evalsite.gunicorn"]
