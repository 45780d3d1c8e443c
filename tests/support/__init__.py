"""What tests run against: servers that speak the clouds' protocols, and openers for every store."""
