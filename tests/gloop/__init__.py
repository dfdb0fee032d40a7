"""GLoop on a device itself, and through FairGV."""
