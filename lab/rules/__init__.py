"""Log rules as people write them: TOML rows, and rows.json that the product reads."""
