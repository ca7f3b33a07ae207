"""What a node's dumps come down to: small enough to travel, and enough for the same verdict."""
