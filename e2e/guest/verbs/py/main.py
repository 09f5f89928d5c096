# SPDX-License-Identifier: Apache-2.0
"""serve PORT | list | run HOST PORT [--usual | --long] [--stock] [NAME...]

run does the brief checks, or with an option more (checks.py); with --stock it
leaves out those that need the patched provider. It prints {"name", "ok", "text",
"seconds"} for each check, one a line. HOST may be "self": both sides are in this
process then."""

import json
import sys
import time
import traceback

import check_data  # noqa: F401
import check_atomic  # noqa: F401
import check_datagram  # noqa: F401
import check_errors  # noqa: F401
import check_events  # noqa: F401
import check_memory  # noqa: F401
import check_states  # noqa: F401
from checks import CHECKS, TIERS
from endpoint import Endpoint
from pair import Failed
from rpc import Proxy, serve


def chosen(args):
    tier = max(TIERS.index(t) if '--' + t in args else 0 for t in TIERS)
    stock = '--stock' in args
    names = [a for a in args if not a.startswith('--')]
    for c in CHECKS:
        if TIERS.index(c['tier']) > tier or c['patched'] and stock:
            continue
        if not names or any(c['name'].startswith(n) for n in names):
            yield c


def run(host, port, args):
    a = Endpoint()
    b = Endpoint() if host == 'self' else Proxy(host, port)
    failed = False
    for c in chosen(args):
        begun, text, ok = time.monotonic(), '', True
        try:
            text = c['run'](a, b) or ''
        except Failed as ex:
            ok, text = False, str(ex)
        except Exception:
            ok, text = False, traceback.format_exc()
        try:
            a.reset()
            b.reset()
        except Exception:
            ok, text = False, text + traceback.format_exc()
        failed = failed or not ok
        print(json.dumps({'name': c['name'], 'ok': ok, 'text': text, 'seconds': time.monotonic() - begun}), flush=True)
    return failed


def main(args):
    if args[0] == 'serve':
        serve(Endpoint(), int(args[1]))
    elif args[0] == 'list':
        for c in CHECKS:
            print(json.dumps({k: c[k] for k in ('name', 'tier', 'patched')}))
    elif args[0] == 'run':
        sys.exit(run(args[1], int(args[2]), args[3:]))


main(sys.argv[1:])
