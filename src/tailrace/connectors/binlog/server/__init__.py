"""Sessions with a server: how they are opened, what they set, and what their failures mean."""
