"""The choice of parts: which protocol, store and source of the cluster a member or a tool gets."""
