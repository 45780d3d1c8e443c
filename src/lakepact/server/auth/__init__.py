"""Who is asking: from a request's headers to a principal, or to the answer that says why not.

    errors.py     what is said to those who are not recognised, or ask too often
    tokens.py     API tokens in the store: made, rotated, revoked, found again
    keys.py       the server's own signing keys, shared by all replicas
    bearer.py     whose bearer token this is; remembered for a short time
    oidc.py       tokens of an identity provider
    jwks.py       its public keys: fetched, bounded, remembered
    sessions.py   people with a browser: cookies, and forms that nobody else has made
    limits.py     how often
    guard.py      the one question before every request
    oauth.py      POST /v1/oauth/tokens
    admin.py      /v1/tokens
    wiring.py     all of it from the settings

It says who, never what they may do.
"""
