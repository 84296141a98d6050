"""What transforms share: options, layouts, casts."""
