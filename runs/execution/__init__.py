"""The shell around the engine: claim, carry out, record, finish, and set right what died."""
