"""The runner's side: test processes started, listened to and ended, whatever they do."""
