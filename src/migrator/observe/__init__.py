"""What people look at: figures now; metrics, records and the live page later."""
