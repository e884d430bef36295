// A supplier in Node.js: takes signed deliveries with express and handles each once.
//
//   node supplier.js '{"name":"globex","secretFile":"…","inbox":"inbox.jsonl","loseEvery":10}'
//
// It listens on the socket that it inherits as file descriptor 3, and ends with its standard input.
//
// What was handled is a line of the inbox file, written and synced before the answer. A line is the record of the event and the
// supplier's own data at once, so that no crash comes between the two; a supplier with a database writes both in one transaction
// (examples/receivers/node shows it with PostgreSQL).

import { createHmac, timingSafeEqual } from 'node:crypto'
import { appendFileSync, closeSync, existsSync, fsyncSync, openSync, readFileSync, truncateSync } from 'node:fs'
import express from 'express'

const config = JSON.parse(process.argv[2])

// Which fields of a body are its id and what orders it.
const kinds = {
  hub: { id: 'hub_uuid', key: 'hub_uuid' },
  device: { id: 'device_uuid', key: 'device_uuid' },
  activation: { id: 'activation_uuid', key: 'device_uuid' }
}

// Behind the last line end stands what a crash cut off. It was never answered, so it comes again.
const text = existsSync(config.inbox) ? readFileSync(config.inbox, 'utf8') : ''
const whole = text.slice(0, text.lastIndexOf('\n') + 1)
if (whole !== text) truncateSync(config.inbox, Buffer.byteLength(whole))
const received = whole.split('\n').slice(0, -1).map((line) => JSON.parse(line))
const bodies = new Map(received.map((r) => [r.id, r.body]))
const inbox = openSync(config.inbox, 'a')
let duplicates = 0
let answers = 0

/** The value of a header that is there exactly once, and not empty. */
const single = (req, name) => {
  const values = req.headersDistinct[name] ?? []
  return values.length === 1 && values[0] !== '' ? values[0] : undefined
}

/** The form first: timingSafeEqual throws when the lengths differ. The raw body: one that is parsed and written anew is another. */
const signed = (req) => {
  const given = single(req, 'x-linkostar-signature')
  if (!/^sha256=[0-9A-Fa-f]{64}$/.test(given ?? '')) return false
  const secret = readFileSync(config.secretFile, 'utf8').trim() // for each request, so that it can be rotated
  if (secret === '' || !Buffer.isBuffer(req.body)) return false
  return timingSafeEqual(Buffer.from(given.slice(7), 'hex'), createHmac('sha256', secret).update(req.body).digest())
}

const take = (req, res) => {
  if (!signed(req)) return res.status(401).end() // the same for every cause
  const kind = kinds[req.params.kind]
  const id = single(req, 'x-linkostar-idempotency-key')
  const text = req.body.toString('utf8')
  let body
  try { body = JSON.parse(text) } catch { return res.status(400).json({ error: 'the body is no JSON' }) }
  if (!kind || !id || body[kind.id] !== id) return res.status(400).json({ error: 'the id in the body is not that of the key' })

  const before = bodies.get(id)
  if (before !== undefined && before !== text) return res.status(422).json({ error: 'this key was seen with another body' })
  if (before === undefined) {
    const record = { supplier: config.name, kind: req.params.kind, id, key: body[kind.key], body: text }
    appendFileSync(inbox, JSON.stringify(record) + '\n')
    fsyncSync(inbox)
    received.push(record)
    bodies.set(id, text)
  } else {
    duplicates++
  }
  if (config.loseEvery > 0 && ++answers % config.loseEvery === 0) return res.socket.destroy() // the work is done, the answer lost
  res.json({ duplicate: before !== undefined })
}

const app = express()
app.disable('x-powered-by')
app.post(`/${config.name}/:kind`, express.raw({ type: 'application/json', limit: '1mb', inflate: false }), take)
app.get('/inbox', (req, res) => res.json({ received, duplicates }))
app.use((err, req, res, next) => res.status(err.status ?? 500).end())

const server = app.listen({ fd: 3 })
process.stdin.resume().on('end', () => {
  server.close(() => closeSync(inbox))
  server.closeAllConnections()
})
