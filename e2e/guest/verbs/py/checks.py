# SPDX-License-Identifier: Apache-2.0
"""The list of checks. A check is a function of two endpoints: a asks, b answers."""

CHECKS = []


def check(name, long=False, patched=False):
    """Enters a function into the list. A long check is of the long tier only; a
    patched one needs the patched provider (UC, or receives that are flushed
    after others completed)."""
    def enter(f):
        CHECKS.append({'name': name, 'run': f, 'long': long, 'patched': patched})
        return f
    return enter


def every(name, cases, long=lambda c: False, **kwargs):
    """Enters a function once for each case, which is its third argument."""
    def enter(f):
        for c in cases:
            check(f'{name} {c}', long=long(c), **kwargs)(lambda a, b, c=c: f(a, b, c))
        return f
    return enter
