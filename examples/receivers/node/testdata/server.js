// A receiver for tests: its handler does what the body says.

import pg from 'pg'
import { Malformed, receiver, standardSecret, TryAgain } from '../receiver.js'

const env = process.env
const pool = new pg.Pool({ connectionString: env.DATABASE_URL })
const app = receiver({
  pool,
  consumer: 'test',
  schema: env.SCHEMA,
  scheme: env.SCHEME,
  limit: 1000,
  waitMs: 100,
  secrets: () => ['', ...env.SECRETS.split(',')]
    .map((text) => env.SCHEME === 'standard' ? standardSecret(text) : Buffer.from(text)),
  tokens: () => ['', ...env.TOKENS.split(',')],
  bodyId: (body) => JSON.parse(body).id,
  handle: async (client, { id, body }) => {
    await client.query('insert into handled values ($1, $2)', [id, body.toString('base64')])
    const { then } = JSON.parse(body)
    if (then === 'malformed') throw new Malformed('no case')
    if (then === 'retry') throw new TryAgain('later')
    if (then === 'fail') throw new Error('broken')
    // While it works, a row of the table hold is there.
    while (then === 'wait' && (await pool.query('select from hold')).rowCount > 0) {
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
})
const server = app.listen(0, '127.0.0.1', () => console.log(`listening on ${server.address().port}`))
