# SPDX-License-Identifier: Apache-2.0
"""The list of checks. A check is a function of two endpoints: a asks, b answers."""

CHECKS = []

# How much a run does; each includes the one before it. brief is every verb and
# every status once, usual all checks, long also sizes that take a minute each.
TIERS = ['brief', 'usual', 'long']


def check(name, tier='brief', patched=False):
    """Enters a function into the list, for runs of the tier and above. A patched
    one needs the patched provider (UC, or receives that are flushed after others
    completed)."""
    if tier not in TIERS:
        raise ValueError(f'check {name}: no tier {tier}')

    def enter(f):
        CHECKS.append({'name': name, 'run': f, 'tier': tier, 'patched': patched})
        return f
    return enter


def every(name, cases, usual=(), long=(), **kwargs):
    """Enters a function once for each case, which is its third argument. The
    cases in usual and in long are of these tiers, the rest is brief."""
    def enter(f):
        for c in cases:
            tier = 'long' if c in long else 'usual' if c in usual else 'brief'
            check(f'{name} {c}', tier, **kwargs)(lambda a, b, c=c: f(a, b, c))
        return f
    return enter
