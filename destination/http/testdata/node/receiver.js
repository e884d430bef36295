// A receiver of signed deliveries in Node.js with express.
//
//   SECRET_FILES=/run/secrets/pillarbox,/run/secrets/pillarbox-old PORT=8080 node receiver.js
//
// Three things are easy to get wrong here:
//
//   - The signature covers the raw bytes. A body that was parsed and written anew is another one: 1.0 becomes 1.
//   - timingSafeEqual throws when the lengths differ, which makes a 500 of a short or missing signature. So the shape is
//     checked first, and decoded bytes are compared, not the header's text.
//   - A delivery can arrive twice. Its Idempotency-Key tells.

import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import express from 'express'

const secretFiles = (process.env.SECRET_FILES ?? '').split(',').filter(Boolean)
if (secretFiles.length === 0) {
  console.error('SECRET_FILES is not set: name the files of the active secrets, with a comma between')
  process.exit(2)
}

// Read for each request, so that a secret can be rotated without a restart.
const activeSecrets = () => secretFiles.map((file) => readFileSync(file, 'utf8').trim()).filter(Boolean)

const shape = /^sha256=[0-9A-Fa-f]{64}$/

function signatureFits (header, body) {
  if (typeof header !== 'string' || !shape.test(header)) return false
  const given = Buffer.from(header.slice('sha256='.length), 'hex')
  let fits = false
  for (const secret of activeSecrets()) {
    // Every secret is tried, so that the time does not tell which one fits.
    fits = timingSafeEqual(given, createHmac('sha256', secret).update(body).digest()) || fits
  }
  return fits
}

// What has been handled: event id → fingerprint of its body. In a real service this is the inbox, a table that is written
// in the same transaction as what the event changes.
const handled = new Map()

const app = express()
app.disable('x-powered-by')

app.post('/events', express.raw({ type: () => true, limit: '1mb' }), (req, res) => {
  const body = Buffer.isBuffer(req.body) ? req.body : Buffer.alloc(0)
  if (!signatureFits(req.headers['pillarbox-signature'], body)) {
    return res.status(401).end() // the same for every cause; why belongs in a metric
  }
  const id = req.headers['idempotency-key']
  if (typeof id !== 'string' || !/^[\x21-\x7e]{1,200}$/.test(id)) {
    return res.status(400).json({ error: 'Idempotency-Key is missing or malformed' })
  }
  const fingerprint = createHash('sha256').update(body).digest('hex')
  if (handled.has(id)) {
    return handled.get(id) === fingerprint
      ? res.json({ duplicate: true })
      : res.status(422).json({ error: 'this Idempotency-Key was seen with another body' })
  }
  if (body.length > 0 && req.is('application/json')) {
    try {
      JSON.parse(body.toString('utf8'))
    } catch {
      return res.status(400).json({ error: 'the body is not JSON' })
    }
  }
  handled.set(id, fingerprint)
  res.json({ handled: body.toString('base64') })
})
app.all('/events', (req, res) => res.set('Allow', 'POST').status(405).end())

// What body parsing refuses (413, a broken encoding) keeps its status; anything else is our own fault.
app.use((err, req, res, next) => res.status(err.status ?? 500).end())

const server = app.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
  console.log(`listening on ${server.address().port}`)
})
