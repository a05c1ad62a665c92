#!/usr/bin/env bash
# What `make docs` does: the documentation as a site in build/site, which a browser opens from the disk and without a network.
# Its search needs a server: python3 -m http.server -d build/site. The programs that build it come from PyPI into .venv-docs, once.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=.venv-docs
[[ -x "$environment/bin/python3" ]] || .venv/bin/python3 -m venv "$environment"
if ! "$environment/bin/python3" tools/check_lock.py requirements-docs.lock >/dev/null; then
  "$environment/bin/python3" -m pip install --disable-pip-version-check --no-deps -q -r requirements-docs.lock
  "$environment/bin/python3" tools/check_lock.py requirements-docs.lock
fi
exec "$environment/bin/python3" tools/docs_site.py build/site
