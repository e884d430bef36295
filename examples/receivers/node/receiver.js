// Receives signed deliveries with express and handles each event once, with the inbox in PostgreSQL (outbox_inbox, of
// `pillarbox migrate`).
//
// The order of the checks: method, content type, Content-Length → bearer token → the signature's form → the raw body, up to a
// limit → the signature → its time → the event id → BEGIN, inbox, handle, COMMIT → the answer.
//
// What is easy to get wrong:
//
//   - The signature covers the raw bytes. A body that was parsed and written anew is another one: 1.0 becomes 1.
//   - timingSafeEqual throws when the lengths differ, which makes a 500 of a short or missing signature. So the form is
//     checked first, and decoded bytes are compared, not the header's text.
//   - req.headers joins or drops repeated headers. req.headersDistinct has them all.
//   - The inbox's record must be written in the transaction of the change, or a crash between the two loses or doubles it.

import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import express from 'express'
import pg from 'pg'

/** Thrown by handle when the event cannot be handled now: 503, with Retry-After. */
export class TryAgain extends Error {}

/** Thrown by handle when the body will never make sense: 400, with the message. */
export class Malformed extends Error {}

/**
 * Returns an express app that receives deliveries at POST `path`.
 *
 *   pool       a pg.Pool
 *   consumer   the name under which the inbox records what was handled
 *   handle     async (client, { id, headers, body }) => {}: the change, with the transaction's client; body is a Buffer
 *   secrets    () => [Buffer, …]: the active secrets, asked for each request, so that they can be rotated
 *   tokens     () => [string, …]: the active bearer tokens; without it none is asked for
 *   scheme     'sha256-hex' or 'standard' (Standard Webhooks)
 *   bodyId     (body) => the event id that the body holds; without it the body is not looked into
 *   schema     the PostgreSQL schema of the tables
 *   limit      of the body, in bytes
 *   tolerance  of the signed time, in seconds
 *   waitMs     how long a delivery waits for its twin
 *   log        (reason) => {}: why a request was refused; never a secret
 */
export function receiver ({
  path = '/events', pool, consumer, handle, secrets, tokens, scheme = 'sha256-hex', bodyId, schema = 'public',
  limit = 1 << 20, tolerance = 300, waitMs = 1000, retryAfter = 1, log = console.error
}) {
  const first = `select id, verdict from ${pg.escapeIdentifier(schema)}.outbox_inbox_first($1, $2, $3)`
  const header = scheme === 'standard'
    ? { id: 'webhook-id', signature: 'webhook-signature', timestamp: 'webhook-timestamp' }
    : { id: 'idempotency-key', signature: 'pillarbox-signature' }

  const refuse = (res, status, reason, error) => {
    log(reason)
    if (status === 401) return res.status(401).end() // the same for every cause
    if (status === 409 || status === 503) res.set('Retry-After', String(retryAfter))
    return error ? res.status(status).json({ error }) : res.status(status).end()
  }

  const checkForm = (req, res, next) => {
    if (req.method !== 'POST') return refuse(res.set('Allow', 'POST'), 405, 'bad_method', 'use POST')
    const length = Number(req.headers['content-length'] ?? NaN)
    const type = single(req, 'content-type')
    const empty = length === 0 && !req.headersDistinct['content-type']
    if (!empty && !/^application\/([\w.+-]+\+)?json *(;|$)/i.test(type ?? '')) {
      return refuse(res, 415, 'bad_content_type', 'the Content-Type is not one that is taken here')
    }
    if ((req.headers['content-encoding'] ?? 'identity') !== 'identity') {
      return refuse(res, 415, 'bad_content_encoding', 'send the body as it is, without a Content-Encoding')
    }
    if (length > limit) return refuse(res, 413, 'too_large', `the body may have ${limit} bytes`)
    next()
  }

  const checkToken = async (req, res, next) => {
    if (!tokens) return next()
    const active = (await tokens()).filter((token) => token.length > 0)
    if (active.length === 0) return refuse(res, 503, 'no_tokens')
    const given = /^Bearer (.*)$/i.exec(single(req, 'authorization') ?? '')
    if (!given) return refuse(res, 401, 'no_token')
    // Hashes are compared, so that the lengths are the same; all of them, so that the time does not tell which one fits.
    const fits = active.map((token) => timingSafeEqual(sha256(token), sha256(given[1])))
    if (!fits.includes(true)) return refuse(res, 401, 'wrong_token')
    next()
  }

  const checkShape = (req, res, next) => {
    const signature = single(req, header.signature)
    if (signature === undefined) return refuse(res, 401, 'no_signature')
    if (scheme === 'standard') {
      const id = single(req, header.id)
      const timestamp = single(req, header.timestamp)
      if (id === undefined || !/^[0-9]{1,15}$/.test(timestamp ?? '')) return refuse(res, 401, 'malformed_signature')
      res.locals.given = signature.split(' ').filter((part) => /^v1,[0-9A-Za-z+/]{43}=$/.test(part))
        .map((part) => Buffer.from(part.slice(3), 'base64'))
      res.locals.prefix = `${id}.${timestamp}.`
      res.locals.time = Number(timestamp)
    } else {
      res.locals.given = /^sha256=[0-9A-Fa-f]{64}$/.test(signature) ? [Buffer.from(signature.slice(7), 'hex')] : []
      res.locals.prefix = ''
    }
    if (res.locals.given.length === 0) return refuse(res, 401, 'malformed_signature')
    next()
  }

  const checkSignature = async (req, res, next) => {
    const body = res.locals.body = Buffer.isBuffer(req.body) ? req.body : Buffer.alloc(0)
    const active = (await secrets()).filter((secret) => secret.length > 0) // with an empty one everybody could sign
    if (active.length === 0) return refuse(res, 503, 'no_secrets')
    const fits = active.flatMap((secret) => {
      const right = createHmac('sha256', secret).update(res.locals.prefix, 'latin1').update(body).digest()
      return res.locals.given.map((given) => timingSafeEqual(given, right))
    })
    if (!fits.includes(true)) return refuse(res, 401, 'wrong_signature')
    if (scheme === 'standard' && Math.abs(Date.now() / 1000 - res.locals.time) > tolerance) {
      return refuse(res, 401, 'not_in_time')
    }
    next()
  }

  const checkId = (req, res, next) => {
    const id = res.locals.id = single(req, header.id)
    if (!/^[\x21-\x7e]{1,255}$/.test(id ?? '')) {
      return refuse(res, 400, 'bad_id', `send one ${header.id}: 1 to 255 visible ASCII characters`)
    }
    if (bodyId) {
      let inBody
      try { inBody = bodyId(res.locals.body) } catch { /* no id */ }
      if (inBody !== id) return refuse(res, 400, 'other_id_in_body', `the event id in the body is not that of ${header.id}`)
    }
    next()
  }

  const transact = async (req, res) => {
    const { id, body } = res.locals
    let client
    try {
      client = await pool.connect()
    } catch (err) {
      return refuse(res, 503, `database_failed: ${err.message}`)
    }
    let answer, committed, broken
    try {
      await client.query('begin')
      const events = JSON.stringify([[id, sha256(body).toString('hex')]])
      const { rows: [{ verdict }] } = await client.query(first, [consumer, events, waitMs])
      if (verdict === 'FIRST' || verdict === 'DUPLICATE') {
        if (verdict === 'FIRST') await handle(client, { id, headers: req.headers, body })
        await client.query('commit') // a duplicate too: it is counted
        committed = true
        answer = () => res.json({ duplicate: verdict === 'DUPLICATE' })
      } else if (verdict === 'IN_FLIGHT') {
        answer = () => refuse(res, 409, 'in_flight', 'it is being handled: try again')
      } else {
        answer = () => refuse(res, 422, 'different_body', `this ${header.id} was seen with another body`)
      }
    } catch (err) {
      if (err instanceof Malformed) answer = () => refuse(res, 400, 'malformed_body', err.message)
      else if (err instanceof TryAgain) answer = () => refuse(res, 503, 'asked_to_retry')
      else answer = () => refuse(res, 500, `failed: ${err.message}`)
    } finally {
      if (!committed) await client.query('rollback').catch((err) => { broken = err })
      client.release(broken)
    }
    return answer()
  }

  const app = express()
  app.disable('x-powered-by')
  app.disable('etag')
  app.all(path, checkForm, checkToken, checkShape, express.raw({ type: () => true, limit, inflate: false }),
    checkSignature, checkId, transact)
  // What reading the body refuses keeps its status; anything else is our own fault.
  app.use((err, req, res, next) => refuse(res, err.status ?? 500, err.type ?? `failed: ${err.message}`))
  return app
}

/** The value of a header that is there exactly once, and not empty. */
function single (req, name) {
  const values = req.headersDistinct[name] ?? []
  return values.length === 1 && values[0] !== '' ? values[0] : undefined
}

const sha256 = (data) => createHash('sha256').update(data).digest()

/** Decodes the text of a Standard Webhooks secret: base64, usually with whsec_ before it. */
export const standardSecret = (text) => Buffer.from(text.trim().replace(/^whsec_/, ''), 'base64')
