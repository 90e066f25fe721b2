"""Whether dynamic reconfiguration pays for given tenants: trials of policies, leads, advice."""
