"""The pages of certificates: one report, several side by side, two compared."""
