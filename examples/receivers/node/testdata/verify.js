// Verifies signatures with the standardwebhooks package. One JSON object a line comes in: secret, headers, body (base64); one line
// goes out: ok, or the error.

import { createInterface } from 'node:readline'
import { Webhook } from 'standardwebhooks'

for await (const line of createInterface({ input: process.stdin })) {
  const { secret, headers, body } = JSON.parse(line)
  try {
    new Webhook(secret).verify(Buffer.from(body, 'base64').toString('utf8'), headers)
    console.log('ok')
  } catch (err) {
    console.log(`${err.name}: ${err.message}`)
  }
}
