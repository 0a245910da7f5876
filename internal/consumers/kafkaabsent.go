//go:build nokafka

package consumers

func kafkaScheme() scheme { return absent("nokafka", "kafka", "kafkas") }
