"""What the README and compose.yaml promise to those who run Evalsite for others."""
