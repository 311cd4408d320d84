"""What every party may know: plans, schemas, messages, losses and domains. Nothing here touches a record's file."""
