// A service that keeps what it is told in a table.
//
//   DATABASE_URL=postgres://… SECRET_FILES=/run/secrets/pillarbox,/run/secrets/pillarbox-old PORT=8080 node server.js
//
// TOKEN_FILES asks for a bearer token; SCHEME=standard takes Standard Webhooks; SCHEMA is where `pillarbox migrate` made the
// tables.

import { readFileSync } from 'node:fs'
import pg from 'pg'
import { Malformed, receiver, standardSecret } from './receiver.js'

const env = process.env
const missing = ['DATABASE_URL', 'SECRET_FILES'].filter((name) => !env[name])
if (missing.length > 0) {
  console.error(`not set: ${missing.join(', ')}; see the top of server.js`)
  process.exit(2)
}

// Read for each request, so that a secret can be rotated without a restart.
const read = (files) => files.split(',').filter(Boolean).map((file) => readFileSync(file, 'utf8').trim())
const standard = env.SCHEME === 'standard'

const pool = new pg.Pool({ connectionString: env.DATABASE_URL })
pool.on('error', (err) => console.error(`a connection was lost: ${err.message}`))
await pool.query('create table if not exists case_event (event_id text primary key, body jsonb not null)')

const app = receiver({
  pool,
  consumer: 'cases',
  schema: env.SCHEMA,
  scheme: standard ? 'standard' : 'sha256-hex',
  secrets: () => read(env.SECRET_FILES).map((text) => standard ? standardSecret(text) : Buffer.from(text)),
  tokens: env.TOKEN_FILES ? () => read(env.TOKEN_FILES) : undefined,
  handle: async (client, { id, body }) => {
    try {
      JSON.parse(body)
    } catch {
      throw new Malformed('the body is not JSON')
    }
    await client.query('insert into case_event values ($1, $2)', [id, body.toString('utf8')])
  }
})

const server = app.listen(Number(env.PORT ?? 8080), '127.0.0.1', () => console.log(`listening on ${server.address().port}`))
const stop = () => server.close(() => pool.end())
process.on('SIGTERM', stop).on('SIGINT', stop)
