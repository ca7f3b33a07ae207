"""What commands share: where the job runs, which case is meant, how a verdict and rows leave."""
