"""Who is asking: from a request's headers to a principal, or to the answer that says why not.

    errors.py     what is said to those who are not recognised, or ask too often
    tokens.py     API tokens in the store: made, rotated, revoked, found again
    keys.py       the server's own signing keys, shared by all replicas
    bearer.py     whose bearer token this is; remembered for a short time
    oidc.py       tokens of an identity provider
    issuer.py     what is asked of it over HTTP: bounded, remembered
    jwks.py       its public keys
    login.py      people who are sent there to log in, and come back with a code
    sessions.py   people with a browser: cookies (cookies.py), and forms that nobody else has made
    limits.py     how often
    guard.py      the one question before every request
    oauth.py      POST /v1/oauth/tokens
    admin.py      /v1/tokens
    wiring.py     all of it from the settings

It says who, never what they may do.
"""
