"""Who may do what: logging in, roles as groups, members."""
