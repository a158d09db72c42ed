"""What answers of brokers mean."""
