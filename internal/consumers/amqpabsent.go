//go:build noamqp

package consumers

func amqpScheme() scheme { return absent("noamqp", "amqp", "amqps") }
