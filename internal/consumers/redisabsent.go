//go:build noredis

package consumers

func redisScheme() scheme { return absent("noredis", "redis", "rediss") }
